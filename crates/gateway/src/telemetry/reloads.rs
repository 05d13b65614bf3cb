//! The config, read at the start and anew.

use super::{Telemetry, names};
use crate::server::Reloaded;

impl Telemetry {
    /// A config is in force that was read at this time.
    pub fn config_read(&self, now_ms: i64) {
        self.gauge(names::CONFIG_READ, &[]).set(now_ms as f64 / 1_000.0);
    }

    /// The config was read anew, and is in force, or is not.
    pub fn reloaded(&self, outcome: &Result<Reloaded, Vec<String>>, now_ms: i64) {
        let (name, refused) = if outcome.is_ok() { ("applied", 0.0) } else { ("refused", 1.0) };
        self.counter(names::RELOADS, &[("outcome", name)]).increment(1);
        self.gauge(names::CONFIG_REFUSED, &[]).set(refused);
        match outcome {
            Ok(Reloaded { added, changed, removed }) => {
                self.config_read(now_ms);
                // Of targets, accounts and outboxes, what is wrong is found out anew.
                self.down.forget(self);
                self.forget_without_target();
                self.forget_full();
                tracing::info!(?added, ?changed, ?removed, "the config was read anew and applied");
            }
            Err(reasons) => {
                for why in reasons {
                    tracing::error!(why, "the new config is refused, and the one of before stays in force");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_reload_who_is_dead_is_found_out_anew_and_not_by_who_called_before() {
        let telemetry = Telemetry::new();
        let before = telemetry.target("shop", None);
        before.circuit_opened(1_000, "refused", 5_000);
        telemetry.outbox_full("shop", "7001");
        telemetry.without_target("shop", "7002");
        before.retire();
        telemetry.reloaded(&Ok(Reloaded::default()), 9_000);
        before.circuit_opened(1_000, "refused", 9_000);
        let text = telemetry.render();
        for line in [
            r#"hapax_circuit_open{channel="shop"} 0"#,
            r#"hapax_outbox_full{channel="shop"} 0"#,
            r#"hapax_reloads_total{outcome="applied"} 1"#,
            "hapax_config_read_timestamp_seconds 9",
            "hapax_config_refused 0",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(telemetry.down_targets().is_empty() && telemetry.channels_without_target().is_empty());
        telemetry.reloaded(&Err(vec!["why".to_owned()]), 10_000);
        let text = telemetry.render();
        assert!(text.contains("hapax_config_refused 1") && text.contains("hapax_config_read_timestamp_seconds 9"), "{text}");
    }
}
