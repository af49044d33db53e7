//! Leases, taken on the store by the contract's own functions.

use crate::context::{Client, Context, Verdict, broken, conflict, ensure, same};
use atoll_store::lease::{Acquired, Lease, acquire, release};
use atoll_store::{Batch, Buffer, Cell, ErrorKind};
use std::time::Duration;

const TERM: Duration = Duration::from_millis(50);
/// Long enough not to expire while a busy machine delays the check.
const LONG: Duration = Duration::from_secs(3600);

fn cell() -> Cell<'static> {
    Cell::new("locks", "leader")
}

async fn held(client: &Client, holder: &str, term: Duration) -> Verdict<Lease> {
    match acquire(&*client.store, cell(), holder.as_bytes(), term).await? {
        Acquired::Held(lease) => Ok(lease),
        Acquired::Busy(lease) => broken(format!("{holder} cannot take a lease that ended: {lease:?}")),
    }
}

/// Lets the lease expire by the store's clock.
async fn outlive(context: &Context<'_>, client: &Client, lease: &Lease) -> Verdict {
    for _ in 0..1000 {
        if client.store.now().await? >= lease.expires {
            return Ok(());
        }
        context.pass(client, TERM).await;
    }
    broken(format!("the store's clock never reaches the end of a lease of {TERM:?}"))
}

pub(super) async fn a_lease_has_one_holder_and_rising_epochs(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let mut last_epoch = 0;
    for round in 0..context.size.of(20, 300) {
        let rivals: Vec<_> = (0..4)
            .map(|rival| {
                let store = client.store.clone();
                tokio::spawn(async move { acquire(&*store, cell(), format!("rival {rival}").as_bytes(), LONG).await })
            })
            .collect();
        let mut held = Vec::new();
        for rival in rivals {
            if let Acquired::Held(lease) = rival.await?? {
                held.push(lease);
            }
        }
        same(format!("rivals that hold the lease in round {round}"), &held.len(), &1)?;
        let lease = held.remove(0);
        ensure(lease.epoch > last_epoch, || format!("epoch {} follows on {last_epoch}", lease.epoch))?;
        last_epoch = lease.epoch;
        release(&*client.store, cell(), &lease).await?;
    }
    Ok(())
}

pub(super) async fn a_paused_holder_is_fenced_off(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let paused = held(&client, "paused", TERM).await?;
    let work = |lease: &Lease, what: &str| {
        let what = Buffer::copy_from(what.as_bytes());
        client.try_write(Batch::on(*b"locks").if_equals(*b"leader", lease.encode()).put(*b"work", what))
    };
    outlive(context, &client, &paused).await?;
    let successor = held(&client, "successor", LONG).await?;
    ensure(successor.epoch > paused.epoch, || {
        format!("the successor has epoch {}, the paused holder had {}", successor.epoch, paused.epoch)
    })?;
    work(&successor, "of the successor").await?;
    conflict("work of the paused holder", work(&paused, "late").await)?;
    let released = release(&*client.store, cell(), &paused).await;
    ensure(released.is_err_and(|error| error.kind() == ErrorKind::Conflict), || {
        "the paused holder gives back a lease that is no longer its own".into()
    })?;
    let renewal = acquire(&*client.store, cell(), b"paused", LONG).await?;
    same("the renewal of the paused holder", &renewal, &Acquired::Busy(successor))?;
    same("the guarded cell", &client.get("locks", "work").await?, &Some(b"of the successor".to_vec()))
}
