//! What a channel's targets want to see beside the webhook: headers of their own, and a client certificate.

use std::fmt;

use http::HeaderMap;
use reqwest::{Certificate, ClientBuilder, Identity};

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
    identity: Option<Identity>,
    /// Where there are any, only who is vouched for by these is believed.
    authorities: Vec<Certificate>,
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
        let identity = identity.map(|(cert, key)| Identity::from_pem(format!("{cert}\n{key}\n").as_bytes())).transpose();
        let identity = identity.map_err(|_| BadTargetTls::Identity)?;
        let authorities = authorities.map(|pem| Certificate::from_pem_bundle(pem.as_bytes())).transpose();
        let authorities = authorities.map_err(|_| BadTargetTls::Authority)?;
        if authorities.as_ref().is_some_and(Vec::is_empty) {
            return Err(BadTargetTls::Authority);
        }
        let read = Self { identity, authorities: authorities.unwrap_or_default() };
        // Whether a key belongs to its certificate shows only here.
        read.on(ClientBuilder::new()).build().map_err(|_| BadTargetTls::Identity)?;
        Ok(read)
    }

    /// True when targets are called like everybody else.
    pub fn is_usual(&self) -> bool {
        self.identity.is_none() && self.authorities.is_empty()
    }

    /// Makes a client that shows the certificate and believes these authorities.
    pub fn on(&self, builder: ClientBuilder) -> ClientBuilder {
        let builder = match &self.identity {
            Some(identity) => builder.identity(identity.clone()),
            None => builder,
        };
        match self.authorities.is_empty() {
            true => builder,
            false => builder.tls_certs_only(self.authorities.iter().cloned()),
        }
    }
}

impl fmt::Debug for TargetTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("TargetTls");
        shown.field("identity", &self.identity.is_some()).field("authorities", &self.authorities.len()).finish()
    }
}
