//! redis-rs at a ring: the checks that every client makes, then writes and the checks again while nodes
//! change.
//!
//! Called with the nodes, HOST:PORT,HOST:PORT,...; the token is in REDISCLI_AUTH. tests/clients/README.md has
//! the protocol.

mod again;
mod checks;
mod load;

use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::{ProtocolVersion, RedisResult};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Why a check or the load failed.
pub type Broken = Box<dyn std::error::Error + Send + Sync>;

/// The nodes, and the token of the ring.
pub struct Ring {
    pub nodes: Vec<String>,
    pub token: String,
}

impl Ring {
    fn named() -> Option<Self> {
        let nodes = std::env::args().nth(1)?.split(',').map(str::to_owned).collect();
        Some(Self { nodes, token: std::env::var("REDISCLI_AUTH").ok()? })
    }

    pub fn client(&self, protocol: Option<ProtocolVersion>) -> RedisResult<ClusterClient> {
        let urls = self.nodes.iter().map(|node| format!("redis://{node}/"));
        let builder = ClusterClientBuilder::new(urls).password(&self.token);
        match protocol {
            Some(protocol) => builder.use_protocol(protocol).build(),
            None => builder.build(),
        }
    }
}

/// The version of the client, as recorded in the lock file.
fn version() -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let package = lock.split("[[package]]").find(|package| package.contains("name = \"redis\"\n"));
    package.and_then(|package| package.split("version = \"").nth(1)?.split('"').next()).unwrap_or_default()
}

pub fn tell(event: &Value) {
    println!("{event}");
}

fn run() -> Result<(), Broken> {
    let ring = Ring::named().ok_or("call it with HOST:PORT,... and the token in REDISCLI_AUTH")?;
    let client = ring.client(None)?;
    let mut connection = client.get_connection()?;
    for (name, check) in checks::CHECKS {
        check(&mut connection, &ring, again::Turn::default())
            .map_err(|broken| format!("{name}: {broken}"))?;
    }
    let mut told = load::run(&ring, &client)?;
    told["client"] = "redis-rs".into();
    told["version"] = version().into();
    told["checks"] = json!(checks::CHECKS.iter().map(|(name, _)| name).collect::<Vec<_>>());
    tell(&told);
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(broken) => {
            eprintln!("{broken}");
            ExitCode::FAILURE
        }
    }
}
