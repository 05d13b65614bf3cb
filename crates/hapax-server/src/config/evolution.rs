//! How an Evolution server proves itself: by a token unless `signature` says otherwise.

use hapax_providers::settings::{EvolutionProof, SignatureRule};
use secrecy::SecretString;

use super::generic;
use super::mistake::Mistakes;
use super::secret::{self, Unsigned};
use super::section::{Found, Section};

pub(super) fn read(
    own: &Found<'_>,
    section: &Section<'_>,
    secrets: Option<Vec<SecretString>>,
    allow_unsigned: bool,
    mistakes: &mut Mistakes,
) -> Option<EvolutionProof> {
    let Some(found) = section.get("signature") else {
        if secrets.is_none() && allow_unsigned {
            return Some(EvolutionProof::Header(SignatureRule::None));
        }
        return Some(EvolutionProof::Jwt { secrets: secret::require(own, secrets, Unsigned::NotAllowed, mistakes) });
    };
    let rule = generic::read_signature(own, section, secrets, allow_unsigned, mistakes)?;
    if let SignatureRule::Hmac { .. } = rule {
        let what = "Evolution signs no bodies; write type = \"token\" and the header that you gave it, \
                    or leave `signature` out and give it the secret as `jwt_key`";
        found.refuse(mistakes, what);
    }
    Some(EvolutionProof::Header(rule))
}
