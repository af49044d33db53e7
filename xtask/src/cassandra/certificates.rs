//! Keys for a cluster whose clients connect by TLS: a certificate authority of its own, and one certificate
//! for all nodes.
//!
//! The JDK's own tool makes them. They protect nothing: they exist so that encrypted connections can be
//! tested.

use super::settings::STORE_PASSWORD;
use super::shape::{Shape, address};
use crate::failure::Failure;
use crate::run;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The nodes' key and certificate, in the cluster's folder.
pub const NODE_KEYS: &str = "node.p12";
/// The certificate authority that clients trust.
pub const AUTHORITY: &str = "authority.pem";

/// Makes the keys in `folder`, unless they exist.
pub fn make(keytool: &Path, folder: &Path, shape: &Shape) -> Result<(), Failure> {
    if folder.join(AUTHORITY).is_file() {
        return Ok(());
    }
    let names: Vec<String> = shape.numbers().map(|node| format!("ip:{}", address(node))).collect();
    let names = format!("san=dns:localhost,{}", names.join(","));
    let (authority, request, signed) =
        (folder.join("authority.p12"), folder.join("request.pem"), folder.join("signed.pem"));
    let (nodes, trusted) = (folder.join(NODE_KEYS), folder.join("trusted.pem"));
    let tool = Tool { keytool };
    tool.make_key(&authority, "CN=Atoll development authority", &["-ext", "bc:critical=ca:true"])?;
    tool.make_key(&nodes, "CN=Atoll development node", &[])?;
    tool.run(&nodes, &["-certreq", "-file"], &request)?;
    tool.run(
        &authority,
        &["-gencert", "-rfc", "-ext", &names, "-infile", &shown(&request), "-outfile"],
        &signed,
    )?;
    tool.run(&authority, &["-exportcert", "-rfc", "-file"], &trusted)?;
    tool.run_as(&nodes, "authority", &["-importcert", "-noprompt", "-file"], &trusted)?;
    tool.run(&nodes, &["-importcert", "-file"], &signed)?;
    // Renamed last: this file's presence means that all the others are complete.
    std::fs::rename(&trusted, folder.join(AUTHORITY)).map_err(Failure::io("keep the certificates"))
}

struct Tool<'a> {
    keytool: &'a Path,
}

impl Tool<'_> {
    fn make_key(&self, store: &Path, name: &str, more: &[&str]) -> Result<(), Failure> {
        // A leftover of an earlier attempt would make the tool fail.
        drop(std::fs::remove_file(store));
        let words =
            ["-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-validity", "3650", "-dname", name];
        self.call(store, "own", &[&words, more].concat())
    }

    fn run(&self, store: &Path, words: &[&str], file: &Path) -> Result<(), Failure> {
        self.run_as(store, "own", words, file)
    }

    fn run_as(&self, store: &Path, alias: &str, words: &[&str], file: &Path) -> Result<(), Failure> {
        self.call(store, alias, &[words, &[&shown(file)]].concat())
    }

    fn call(&self, store: &Path, alias: &str, words: &[&str]) -> Result<(), Failure> {
        let mut command = Command::new(self.keytool);
        command.args(words).args(["-alias", alias, "-storetype", "PKCS12", "-storepass", STORE_PASSWORD]);
        command.arg("-keystore").arg(store).stderr(std::process::Stdio::null());
        run::captured("keytool", &mut command).map(drop)
    }
}

fn shown(path: &Path) -> String {
    PathBuf::from(path).to_string_lossy().into_owned()
}
