//! An authority of one's own: it signs certificates for the nodes of a ring and for their clients.
//!
//! Invariant: keys are made here and handed over as text; nothing is kept and no file is touched.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use std::time::Duration;

/// Who signs.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    key: String,
}

/// A certificate and its key, both in PEM format.
pub struct Issued {
    /// What everybody may see.
    pub certificate: String,
    /// What nobody else may.
    pub key: String,
}

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A node: it answers, and connects to others.
    Node,
    /// A client: it only connects.
    Client,
}

/// A certificate that cannot be made, or a key that is none.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a certificate: {0}")]
pub struct AuthorityError(#[from] rcgen::Error);

/// How it is called; which one it is follows from its key.
const NAME: &str = "The authority of a ring of Atoll";

const DAY: Duration = Duration::from_secs(86_400);

/// Clocks of machines may differ by so much.
const EARLIER: Duration = DAY;

/// What an authority signs is good for so long, and itself for twice as long.
const LIFETIME: Duration = Duration::from_secs(10 * 365 * 86_400);

impl Authority {
    /// A new one.
    ///
    /// # Errors
    /// [`AuthorityError`] if no key can be made.
    pub fn make() -> Result<Self, AuthorityError> {
        Self::of(KeyPair::generate()?)
    }

    /// The one with this key.
    ///
    /// # Errors
    /// [`AuthorityError`] if it is no key.
    pub fn of_key(key: &str) -> Result<Self, AuthorityError> {
        Self::of(KeyPair::from_pem(key)?)
    }

    fn of(key: KeyPair) -> Result<Self, AuthorityError> {
        let text = key.serialize_pem();
        Ok(Self { issuer: Issuer::new(params(Duration::ZERO, DAY)?, key), key: text })
    }

    /// Its own certificate, which clients and nodes trust, made at a moment since 1970; and its key.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn issued(&self, now: Duration) -> Result<Issued, AuthorityError> {
        let own = params(now.saturating_sub(EARLIER), now + 2 * LIFETIME)?;
        Ok(Issued { certificate: own.self_signed(self.issuer.key())?.pem(), key: self.key.clone() })
    }

    /// A certificate for these hosts, made at a moment since 1970.
    ///
    /// # Errors
    /// [`AuthorityError`] if a host is none.
    pub fn sign(&self, hosts: &[&str], purpose: Use, now: Duration) -> Result<Issued, AuthorityError> {
        self.sign_for(hosts, purpose, (now.saturating_sub(EARLIER), now + LIFETIME))
    }

    /// As [`sign`](Self::sign), good from one moment to another.
    ///
    /// # Errors
    /// As there.
    pub fn sign_for(
        &self,
        hosts: &[&str],
        purpose: Use,
        (from, until): (Duration, Duration),
    ) -> Result<Issued, AuthorityError> {
        let key = KeyPair::generate()?;
        let mut params =
            CertificateParams::new(hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>())?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, hosts.first().copied().unwrap_or("a client"));
        (params.not_before, params.not_after) =
            (date_time_ymd(1970, 1, 1) + from, date_time_ymd(1970, 1, 1) + until);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        params.extended_key_usages = match purpose {
            Use::Node => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
            Use::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
        };
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Issued { certificate, key: key.serialize_pem() })
    }
}

/// What an authority says of itself.
fn params(from: Duration, until: Duration) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (params.not_before, params.not_after) =
        (date_time_ymd(1970, 1, 1) + from, date_time_ymd(1970, 1, 1) + until);
    Ok(params)
}
