//! Settings, and registers that end after a time. A document that is over is taken for none, and purge removes it.

use hapax_store::StoreError;
use hapax_store::registers::Register;

use super::query::Query;
use super::upkeep::delete_as_seen;
use super::value::{Doc, Fields, text, time};
use super::writes::Writes;
use super::{FirestoreEngine, paths};

pub(super) fn setting_path(name: &str) -> String {
    paths::hashed(paths::SETTINGS, blake3::hash(name.as_bytes()).as_bytes())
}

pub(super) fn read_register(doc: &Doc) -> Result<Register, StoreError> {
    Ok(Register { value: doc.text("value")?, ends_ms: doc.maybe_time("expires_at") })
}

fn fields(name: &str, register: &Register) -> Fields {
    let fields = Fields::default().with("name", text(name)).with("value", text(&register.value));
    fields.with_some("expires_at", register.ends_ms, time)
}

impl FirestoreEngine {
    pub(super) async fn amend_setting(
        &self,
        name: &str,
        (expected, new): (Option<&str>, Option<&str>),
        keep_ms: Option<i64>,
    ) -> Result<Option<String>, StoreError> {
        let path = setting_path(name);
        let full = self.inner.client.name(&path);
        loop {
            let got = self.inner.client.get(std::slice::from_ref(&path), None).await?;
            let now_ms = self.inner.clock.as_ref().map_or(got.read_micros / 1_000, |clock| clock.now_ms());
            let seen = got.docs.into_iter().find(|doc| doc.name == full);
            let kept = seen.as_ref().map(read_register).transpose()?.filter(|kept| !kept.is_over(now_ms));
            let found = kept.as_ref().map(|kept| &*kept.value);
            let new = new.map(|new| Register { value: new.to_owned(), ends_ms: keep_ms.map(|keep_ms| now_ms + keep_ms) });
            if found != expected || kept == new {
                return Ok(found.map(str::to_owned));
            }
            let mut change = Writes::default();
            match &new {
                Some(new) => change.put(full.clone(), fields(name, new)),
                None => change.delete(full.clone()),
            }
            let as_seen = [(full.clone(), seen.map(|doc| doc.update_time))];
            let body = change.commit(&as_seen.into_iter().collect())?;
            match self.inner.client.call("commit", &body).await {
                Ok(_) => return Ok(new.map(|new| new.value)),
                // Somebody was faster: the next look tells what is there now.
                Err(fault) if fault.crossed() => {}
                Err(fault) => return Err(fault.error("amending a setting")),
            }
        }
    }

    pub(super) async fn put_setting(&self, name: &str, register: &Register) -> Result<(), StoreError> {
        let mut put = Writes::default();
        put.create(self.inner.client.name(&setting_path(name)), fields(name, register));
        self.create_once(&put).await.map(|_| ())
    }

    pub(super) async fn purge_settings(&self, max: usize) -> Result<u64, StoreError> {
        let over = Query::new(paths::SETTINGS).at_most("expires_at", time(self.clock_ms().await?));
        let over = self.inner.client.run(&over.lowest_first("expires_at").only(&["expires_at"]).limit(max)).await?;
        self.write_each(over.into_iter().map(delete_as_seen).collect()).await
    }
}
