//! The configured channels with their adapters: made once at start, shared by everything that works for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use hapax_providers::Provider;
use hapax_providers::sending::Sending;

use crate::settings;

/// One channel: what was configured, and what speaks its provider's language.
#[derive(Clone)]
pub struct Channel {
    pub settings: Arc<settings::Channel>,
    pub provider: Arc<dyn Provider>,
    /// `None`: this channel only receives.
    pub sending: Option<Arc<dyn Sending>>,
}

/// All of them, by name.
#[derive(Clone)]
pub struct Channels(Arc<BTreeMap<Arc<str>, Channel>>);

impl Channel {
    fn new(settings: &settings::Channel) -> Self {
        let token = settings.send.as_ref().map(|send| send.token.as_ref());
        Self {
            provider: hapax_providers::build(&settings.provider),
            sending: token.and_then(|token| hapax_providers::build_sending(&settings.provider, token)),
            settings: Arc::new(settings.clone()),
        }
    }

    pub fn name(&self) -> &Arc<str> {
        &self.settings.name
    }
}

impl Channels {
    pub fn new(settings: &[settings::Channel]) -> Self {
        let channel = |settings: &settings::Channel| (Arc::clone(&settings.name), Channel::new(settings));
        Self(Arc::new(settings.iter().map(channel).collect()))
    }

    pub fn get(&self, name: &str) -> Option<&Channel> {
        self.0.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Channel> {
        self.0.values()
    }

    /// How long each of them keeps its finished events.
    pub fn retention(&self) -> Vec<(String, i64)> {
        self.iter().map(|channel| (channel.name().to_string(), channel.settings.retention_ms)).collect()
    }
}
