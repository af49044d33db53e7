//! Log events of libraries and nodes on standard error, beside what a verb prints.

use crate::Failure;
use std::ffi::OsStr;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Starts logging to standard error. Warnings are logged by default; `ATOLL_LOG` selects more or less, in the
/// syntax of `tracing`. Events carry a timestamp unless standard error is a terminal; with
/// `ATOLL_LOG_FORMAT=json` each event is one JSON object per line.
///
/// # Errors
/// [`Failure::Usage`] for a variable that cannot be understood: otherwise its user would wait for events in
/// vain.
pub(crate) fn start_logging(json: bool) -> Result<(), Failure> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let filter = filter(variable("ATOLL_LOG").as_deref(), json)?;
    let wants_objects = wants_objects(variable("ATOLL_LOG_FORMAT").as_deref())?;
    let is_watched = std::io::stderr().is_terminal();
    let events = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // This fails only if a subscriber is set already, which is just as good.
    let _ = match (wants_objects, is_watched) {
        (true, _) => events.json().flatten_event(true).try_init(),
        (false, true) => events.with_ansi(true).with_target(false).without_time().try_init(),
        (false, false) => events.with_ansi(false).with_target(false).try_init(),
    };
    Ok(())
}

fn filter(wanted: Option<&OsStr>, json: bool) -> Result<EnvFilter, Failure> {
    let Some(wanted) = wanted else {
        // A reader of our JSON expects nothing else unless it asked for events. The Cassandra driver warns
        // about nodes that it can do without, or about failures that we report ourselves. openraft warns
        // about an absent member ten times a second for as long as it is away; nodes report that once.
        return Ok(EnvFilter::new(if json { "off" } else { "warn,scylla=off,openraft=off" }));
    };
    let parsed = wanted.to_str().and_then(|wanted| EnvFilter::try_new(wanted).ok());
    parsed.ok_or_else(|| Failure::Usage {
        problem: format!("ATOLL_LOG asks for {wanted:?}, which is not a filter of events"),
        hint:
            "use error, warn, info, debug, trace or off, or one for each place, such as warn,atoll_ring=debug"
                .to_owned(),
    })
}

fn wants_objects(format: Option<&OsStr>) -> Result<bool, Failure> {
    match format {
        None => Ok(false),
        Some(format) if format == "json" => Ok(true),
        Some(format) if format == "text" => Ok(false),
        Some(format) => Err(Failure::Usage {
            problem: format!("ATOLL_LOG_FORMAT is {format:?}, which is not a format of events"),
            hint: "use json or text".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_or_format_that_is_none_is_refused_and_the_usual_ones_are_not() {
        let asked = |wanted: &str| filter(Some(wanted.as_ref()), false).map(|filter| filter.to_string());
        for good in ["info", "off", "atoll_ring=debug,warn", "atoll_council"] {
            assert!(asked(good).is_ok(), "{good}");
        }
        for bad in ["info=loud", "atoll_ring=7x", "a=b=c"] {
            let error = asked(bad).unwrap_err().to_string();
            assert!(error.contains("ATOLL_LOG") && error.contains(bad), "{error}");
        }
        assert_eq!(filter(None, true).unwrap().to_string(), "off");
        let format = |format: &str| wants_objects(Some(format.as_ref())).ok();
        assert_eq!([format("json"), format("text"), format("xml")], [Some(true), Some(false), None]);
    }
}
