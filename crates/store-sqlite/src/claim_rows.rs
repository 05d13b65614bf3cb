//! Claims as versions before 10 of the schema kept them, a row each.

use hapax_domain::claim::{Claim, ClaimKey, ClaimResult, ClaimState, OnAbandoned};
use rusqlite::{Connection, Row};

use super::claim_entry;
use super::claim_index::unreadable;

const ROWS: &str =
    "SELECT fence, name, state, claimed, ends, token, until, lease, ttl, hold, fingerprint, holder, completed, content_type,
    result FROM claims ORDER BY fence";

/// Tells each as the body of an entry, in the order of their fences; false when there is no such table.
pub(super) fn read_all(db: &Connection, mut tell: impl FnMut(i64, &[u8]) -> rusqlite::Result<()>) -> rusqlite::Result<bool> {
    if !db.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'claims'")?.exists([])? {
        return Ok(false);
    }
    let mut select = db.prepare(ROWS)?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        tell(row.get(0)?, &claim_entry::body(&read(row)?, row.get_ref(1)?.as_blob()?))?;
    }
    Ok(true)
}

fn read(row: &Row<'_>) -> rusqlite::Result<Claim> {
    let claimed_at_ms: i64 = row.get(3)?;
    let (content_type, bytes) = (row.get(13)?, row.get::<_, Option<Vec<u8>>>(14)?);
    Ok(Claim {
        key: ClaimKey::from_name(row.get_ref(1)?.as_blob()?).ok_or_else(unreadable)?,
        state: ClaimState::from_code(row.get(2)?).ok_or_else(unreadable)?,
        token: row.get::<_, Option<String>>(5)?.unwrap_or_default(),
        fence: row.get::<_, i64>(0)?.cast_unsigned(),
        fingerprint: row.get(10)?,
        on_abandoned: if row.get::<_, Option<bool>>(9)? == Some(true) { OnAbandoned::Hold } else { OnAbandoned::Takeover },
        holder: row.get(11)?,
        claimed_at_ms,
        lease_ms: row.get::<_, Option<i64>>(7)?.unwrap_or_default(),
        lease_until_ms: row.get::<_, Option<i64>>(6)?.unwrap_or(claimed_at_ms),
        ttl_ms: row.get::<_, Option<i64>>(8)?.unwrap_or_default(),
        completed_at_ms: row.get(12)?,
        result: bytes.map(|bytes| ClaimResult { content_type, bytes: bytes.into() }),
        ends_ms: row.get(4)?,
    })
}
