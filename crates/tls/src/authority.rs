//! A certificate authority for a ring: signs certificates for its nodes and their clients.
//!
//! Invariant: keys are generated here and returned as text; nothing is stored and no file is touched.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use std::time::Duration;

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    key: String,
}

/// A certificate and its key, both in PEM format.
pub struct Issued {
    /// The public part.
    pub certificate: String,
    /// The secret part.
    pub key: String,
}

/// The purpose of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A node: it accepts connections, and connects to others.
    Node,
    /// A client: it only connects.
    Client,
}

/// A certificate cannot be made, or a key is invalid.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a certificate: {0}")]
pub struct AuthorityError(#[from] rcgen::Error);

/// The common name; the key is what identifies the authority.
const NAME: &str = "The authority of a ring of Atoll";

const DAY: Duration = Duration::from_secs(86_400);

/// How much earlier than now certificates begin, because clocks of machines differ.
const BACKDATING: Duration = DAY;

/// How long signed certificates are valid; the authority's own is valid for twice as long.
const LIFETIME: Duration = Duration::from_secs(10 * 365 * 86_400);

impl Authority {
    /// A new authority.
    ///
    /// # Errors
    /// [`AuthorityError`] if no key can be made.
    pub fn make() -> Result<Self, AuthorityError> {
        Self::of(KeyPair::generate()?)
    }

    /// The authority with this key.
    ///
    /// # Errors
    /// [`AuthorityError`] if the key is invalid.
    pub fn of_key(key: &str) -> Result<Self, AuthorityError> {
        Self::of(KeyPair::from_pem(key)?)
    }

    fn of(key: KeyPair) -> Result<Self, AuthorityError> {
        let text = key.serialize_pem();
        Ok(Self { issuer: Issuer::new(params(Duration::ZERO, DAY)?, key), key: text })
    }

    /// The authority's own certificate, which clients and nodes trust, and its key. `now` is the time since
    /// 1970.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn issued(&self, now: Duration) -> Result<Issued, AuthorityError> {
        let own = params(now.saturating_sub(BACKDATING), now + 2 * LIFETIME)?;
        Ok(Issued { certificate: own.self_signed(self.issuer.key())?.pem(), key: self.key.clone() })
    }

    /// Signs a certificate for these hosts. `now` is the time since 1970.
    ///
    /// # Errors
    /// [`AuthorityError`] if a host is invalid.
    pub fn sign(&self, hosts: &[&str], purpose: Use, now: Duration) -> Result<Issued, AuthorityError> {
        self.sign_for(hosts, purpose, (now.saturating_sub(BACKDATING), now + LIFETIME))
    }

    /// Like [`sign`](Self::sign), with an explicit period of validity.
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

/// The parameters of an authority's own certificate.
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
