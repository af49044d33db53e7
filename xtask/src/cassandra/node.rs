//! One node: its folder, and a process that outlives this one.
//!
//! Invariant: a process is signalled only if its command line names this very node. So a process id that
//! the system has reused meanwhile does no harm.

use super::native::{CONNECT_LIMIT, Credentials, Reply, Session};
use super::shape::Shape;
use super::{java, machine, settings};
use crate::console::Step;
use crate::failure::{Failure, shown};
use crate::{family, run, workspace};
use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a node may take until it answers. Alone on an idle machine it takes 15 to 20 seconds.
const START_LIMIT: Duration = Duration::from_secs(180);
/// How long a node may take to shut down by itself before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// How long to wait for a node to end, killing included.
const END_LIMIT: Duration = Duration::from_secs(40);
/// How often a process that is not a child of this one, or a port that is not open yet, is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How many lines of the log are shown when a node ends during its start.
const LAST_LINES: usize = 15;

/// The role that a new cluster with passwords starts out with.
pub const FIRST_ROLE: Credentials<'static> = Credentials { user: "cassandra", password: "cassandra" };

/// A node of a cluster.
pub struct Node<'a> {
    shape: &'a Shape,
    /// Its number, from 1.
    pub number: usize,
    folder: PathBuf,
}

impl<'a> Node<'a> {
    /// The node of this number in the cluster whose folder is `folder`.
    pub fn of(shape: &'a Shape, folder: &Path, number: usize) -> Self {
        Self { shape, number, folder: folder.join(format!("node-{number}")) }
    }

    /// The log file, with all output of the node.
    pub fn log(&self) -> PathBuf {
        self.folder.join("system.log")
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.shape.clients(self.number)
    }

    /// The id of its process, if it runs.
    pub fn process(&self) -> Option<u32> {
        let process = std::fs::read_to_string(self.folder.join("pid")).ok()?.trim().parse().ok()?;
        command_line(process)?.contains(&self.mark()).then_some(process)
    }

    /// Whether it accepts clients. It can check a password only when enough of the nodes run that store it.
    pub fn answers(&self) -> bool {
        if self.shape.tls {
            // The port opens last in a node's start, and only a TLS client could read more than that.
            return TcpStream::connect_timeout(&self.address(), CONNECT_LIMIT).is_ok();
        }
        Session::is_greeted(self.address())
    }

    /// Starts its process with the clock `ahead` seconds ahead. Does not wait until the node answers.
    pub fn start(&self, java: &Path, jars: &Path, ahead: i64) -> Result<Child, Failure> {
        let doing = || format!("start node {}", self.number);
        std::fs::create_dir_all(&self.folder).map_err(Failure::io(doing()))?;
        let text = settings::node(self.shape, self.number, &self.folder);
        std::fs::write(self.folder.join("cassandra.yaml"), text).map_err(Failure::io(doing()))?;
        std::fs::write(self.folder.join("logback.xml"), settings::LOGGING).map_err(Failure::io(doing()))?;
        let log = File::options().create(true).append(true).open(self.log()).map_err(Failure::io(doing()))?;
        let errors = log.try_clone().map_err(Failure::io(doing()))?;
        // The shell writes its own process id before Java replaces it, so a running node can always be
        // found. Its own process group protects it from the interrupt that ends this program.
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ >\"$0\" && exec \"$@\""]).arg(self.folder.join("pid")).arg(java);
        if ahead != 0 {
            // A clock that a test has set right before would begin right.
            let _ = std::fs::remove_file(self.folder.join("clock-is-right"));
            self.make_clock(&java::beside(java, "javac"), jars)?;
            command.args([
                "-Dcassandra.clock=atoll.development.WrongClock".to_owned(),
                format!("-Datoll.clock.ahead={ahead}"),
            ]);
        }
        command.args(self.flags(jars)?).current_dir(&self.folder).process_group(0);
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        // The node outlives the program that started it, even a test that is killed.
        command.env_remove(family::VARIABLE);
        command.spawn().map_err(Failure::io(doing()))
    }

    /// Waits until the node accepts clients; fails if `child` ends first.
    pub fn wait_until_ready(&self, mut child: Child, step: &mut Step) -> Result<(), Failure> {
        let started = Instant::now();
        while !self.answers() {
            if let Some(status) = child.try_wait().map_err(Failure::io("wait for a node"))? {
                return Err(self.failed(&format!("node {} {}", self.number, run::ended(status))));
            }
            if started.elapsed() > START_LIMIT {
                let limit = crate::console::seconds(START_LIMIT);
                return Err(self.failed(&format!("node {} does not answer after {limit}", self.number)));
            }
            step.tick(self.last_lines(1).first().map_or("", String::as_str));
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Waits until the node lets a client in and reaches every other node.
    pub fn wait_until_joined(&self, step: &mut Step) -> Result<(), Failure> {
        let started = Instant::now();
        while let Err(said) = self.joined() {
            if started.elapsed() > START_LIMIT {
                let problem = format!("node {} does not reach every other one: {said}", self.number);
                return Err(self.failed(&problem));
            }
            step.tick(&said);
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// An error says why this node does not reach every other one.
    fn joined(&self) -> Result<(), String> {
        // This program does not speak TLS, so there is nothing to ask.
        if self.shape.tls {
            return Ok(());
        }
        // Empty tables that are stored on one node, on two and on three: reading one at consistency ALL
        // needs each of its nodes.
        let table = match self.shape.nodes {
            1 => "system.batches",
            2 => "system_traces.events",
            _ => "system_distributed.repair_history",
        };
        self.told(&format!("SELECT * FROM {table}"))
    }

    fn told(&self, statement: &str) -> Result<(), String> {
        let asked =
            Session::open(self.address(), &FIRST_ROLE).and_then(|mut session| session.ask_all(statement));
        match asked {
            Ok(Reply::Ready) => Ok(()),
            Ok(other) => Err(format!("{other:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Replicates the roles to all nodes, so that any node lets clients in while others are down. A new
    /// cluster stores them on one node.
    pub fn spread_roles(&self) -> Result<(), Failure> {
        let keyspace = format!(
            "ALTER KEYSPACE system_auth WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {}}}",
            self.shape.nodes
        );
        // Reading them from all nodes copies them to those that lack them.
        let again = "SELECT * FROM system_auth.roles".to_owned();
        for statement in [keyspace, again] {
            self.told(&statement)
                .map_err(|said| self.failed(&format!("roles cannot be kept on all nodes: {said}")))?;
        }
        Ok(())
    }

    /// Sends `signal` to its process and waits until it has ended; returns whether it ran.
    pub fn end(&self, signal: &str) -> Result<bool, Failure> {
        let Some(process) = self.process() else { return Ok(false) };
        send(signal, process)?;
        let started = Instant::now();
        // The command line in /proc disappears before the kernel closes the process's listening sockets.
        while self.process().is_some() || machine::has_addresses(self.shape, self.number).is_err() {
            if started.elapsed() > END_LIMIT {
                return Err(self.failed(&format!("node {} does not end", self.number)));
            }
            if started.elapsed() > STOP_LIMIT && self.process().is_some() {
                send("KILL", process)?;
            }
            std::thread::sleep(POLL_INTERVAL / 5);
        }
        Ok(true)
    }

    /// The last lines of its log.
    pub fn last_lines(&self, count: usize) -> Vec<String> {
        let text = std::fs::read(self.log()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let lines: Vec<String> = text.unwrap_or_default().lines().map(str::to_owned).collect();
        lines[lines.len().saturating_sub(count)..].to_vec()
    }

    /// An argument that is on the command line of this node and of no other process.
    fn mark(&self) -> String {
        format!("-Datoll.node={}", self.folder.display())
    }

    fn flags(&self, jars: &Path) -> Result<Vec<String>, Failure> {
        let agent = agent(jars)?;
        let (folder, heap) = (self.folder.display(), self.shape.heap);
        let mut flags = java::doors();
        flags.extend([
            self.mark(),
            format!("-Xms{heap}"),
            format!("-Xmx{heap}"),
            "-XX:+UseG1GC".to_owned(),
            "-XX:MaxDirectMemorySize=512M".to_owned(),
            "-XX:+ExitOnOutOfMemoryError".to_owned(),
            "-XX:-UsePerfData".to_owned(),
            format!("-javaagent:{}", agent.display()),
            "-Djdk.attach.allowAttachSelf=true".to_owned(),
            "-Dio.netty.tryReflectionSetAccessible=true".to_owned(),
            "-Djava.net.preferIPv4Stack=true".to_owned(),
            format!("-Dcassandra.storagedir={folder}/data"),
            format!("-Dcassandra.config=file://{folder}/cassandra.yaml"),
            format!("-Dlogback.configurationFile={folder}/logback.xml"),
            format!("-Dcassandra.jmx.local.port={}", self.shape.administration_port(self.number)),
            // No other nodes exist on this network whose gossip would have to settle.
            "-Dcassandra.skip_wait_for_gossip_to_settle=0".to_owned(),
            "-Dcassandra.ring_delay_ms=1000".to_owned(),
            "-Dcassandra.superuser_setup_delay_ms=0".to_owned(),
            "-Dcassandra-foreground=yes".to_owned(),
            "-cp".to_owned(),
            format!("{folder}:{}/*", jars.display()),
            "org.apache.cassandra.service.CassandraDaemon".to_owned(),
        ]);
        Ok(flags)
    }

    /// Compiles a clock class that is wrong by some seconds, until it is set right, into the folder that is
    /// first on the node's class path.
    fn make_clock(&self, compiler: &Path, jars: &Path) -> Result<(), Failure> {
        let mut command = Command::new(compiler);
        command.arg("-cp").arg(jars.join("*")).arg("-d").arg(&self.folder);
        command.arg(workspace::root()?.join("xtask/cassandra/WrongClock.java"));
        run::captured("javac", &mut command).map(drop)
    }

    fn failed(&self, problem: &str) -> Failure {
        for line in self.last_lines(LAST_LINES) {
            println!("    {line}");
        }
        Failure::Refused { problem: problem.to_owned(), hint: format!("its log is {}", shown(&self.log())) }
    }
}

/// The Java agent that measures objects in memory; Cassandra does not start without it.
fn agent(jars: &Path) -> Result<PathBuf, Failure> {
    let entries = std::fs::read_dir(jars).map_err(Failure::io(format!("read {}", jars.display())))?;
    let mut agents = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("jamm-")));
    agents.next().ok_or_else(|| Failure::Refused {
        problem: format!("{} holds no jamm-*.jar", jars.display()),
        hint: "remove that folder; it is fetched anew".to_owned(),
    })
}

/// The command line of a process; `None` if it does not exist or is a zombie.
fn command_line(process: u32) -> Option<String> {
    if Path::new("/proc/self/cmdline").exists() {
        let words = std::fs::read(format!("/proc/{process}/cmdline")).ok()?;
        return Some(String::from_utf8_lossy(&words).replace('\0', " "));
    }
    let mut command = Command::new("ps");
    command.args(["-ww", "-o", "command=", "-p", &process.to_string()]).stdin(Stdio::null());
    command.output().ok().map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn send(signal: &str, process: u32) -> Result<(), Failure> {
    let mut command = Command::new("kill");
    command.args([&format!("-{signal}"), &process.to_string()]);
    // The process may have ended by itself meanwhile, which is just as good.
    command.stderr(Stdio::null()).status().map(drop).map_err(Failure::io("end a node"))
}
