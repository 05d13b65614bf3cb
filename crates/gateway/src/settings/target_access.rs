//! What a channel's targets want to see beside the webhook: headers of their own, and a client certificate.

use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;

/// How targets are reached.
#[derive(Clone, Debug, Default)]
pub struct TargetAccess {
    /// Added to every request; marked as secret.
    pub headers: HeaderMap,
    pub tls: TargetTls,
}

/// Whom we show ourselves as, and whom we believe.
#[derive(Clone, Default)]
pub struct TargetTls {
    identity: Option<Arc<Identity>>,
    /// Where there are any, only who is vouched for by these is believed.
    authorities: Vec<CertificateDer<'static>>,
}

struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// Which of the files is wrong, and why. No part of a key is repeated.
#[derive(Debug, thiserror::Error)]
pub enum BadTargetTls {
    #[error("there is no certificate in this file, or its key is not the one that belongs to it")]
    Identity,
    #[error("there is no certificate in this file; it begins with -----BEGIN CERTIFICATE-----")]
    Authority,
}

impl TargetTls {
    /// Reads a certificate with its key, and whom to believe, all in PEM.
    pub fn read(identity: Option<(&str, &str)>, authorities: Option<&str>) -> Result<Self, BadTargetTls> {
        let identity = identity.map(|(cert, key)| Identity::read(cert, key)).transpose()?;
        let authorities = authorities.map(|pem| certificates(pem).ok_or(BadTargetTls::Authority)).transpose()?;
        if authorities.as_ref().is_some_and(Vec::is_empty) {
            return Err(BadTargetTls::Authority);
        }
        let read = Self { identity: identity.map(Arc::new), authorities: authorities.unwrap_or_default() };
        // Whether a key belongs to its certificate shows only here.
        read.client_config().map_err(|_| BadTargetTls::Identity)?;
        Ok(read)
    }

    /// True when targets are called like everybody else.
    pub fn is_usual(&self) -> bool {
        self.identity.is_none() && self.authorities.is_empty()
    }

    /// What a client needs that shows the certificate and believes these authorities, or those of the system.
    pub fn client_config(&self) -> Result<ClientConfig, rustls::Error> {
        let provider = CryptoProvider::get_default().map_or_else(|| Arc::new(aws_lc_rs::default_provider()), Arc::clone);
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(rustls::ALL_VERSIONS)?;
        let builder = match self.authorities.is_empty() {
            true => builder.dangerous().with_custom_certificate_verifier(Arc::new(Verifier::new(provider)?)),
            false => {
                let mut roots = RootCertStore::empty();
                self.authorities.iter().try_for_each(|authority| roots.add(authority.clone()))?;
                builder.with_root_certificates(roots)
            }
        };
        match &self.identity {
            Some(identity) => builder.with_client_auth_cert(identity.chain.clone(), identity.key.clone_key()),
            None => Ok(builder.with_no_client_auth()),
        }
    }
}

impl Identity {
    fn read(cert: &str, key: &str) -> Result<Self, BadTargetTls> {
        // Some have both in each of the two files.
        let pem = format!("{cert}\n{key}\n");
        let chain = certificates(&pem).filter(|chain| !chain.is_empty()).ok_or(BadTargetTls::Identity)?;
        let keys: Result<Vec<_>, _> = PrivateKeyDer::pem_slice_iter(pem.as_bytes()).collect();
        let key = keys.ok().and_then(|mut keys| keys.pop()).ok_or(BadTargetTls::Identity)?;
        Ok(Self { chain, key })
    }
}

/// All certificates of a file; `None` when one of them cannot be read.
fn certificates(pem: &str) -> Option<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().ok()
}

impl fmt::Debug for TargetTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("TargetTls");
        shown.field("identity", &self.identity.is_some()).field("authorities", &self.authorities.len()).finish()
    }
}
