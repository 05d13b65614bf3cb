//! What a thread is made of: messages, in or out, each with a status that only moves forward.

use super::Status;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    In,
    Out,
}

impl Direction {
    pub fn name(self) -> &'static str {
        match self {
            Direction::In => "in",
            Direction::Out => "out",
        }
    }
}

/// Who goes first when an account may not send all at once. Ordered: a reply before everything else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    Reply,
    #[default]
    Normal,
    Bulk,
}

impl Priority {
    pub const ALL: [Priority; 3] = [Priority::Reply, Priority::Normal, Priority::Bulk];

    pub fn name(self) -> &'static str {
        match self {
            Priority::Reply => "reply",
            Priority::Normal => "normal",
            Priority::Bulk => "bulk",
        }
    }

    /// Replies have room of their own in the outbox: bulk never takes it.
    pub fn is_reply(self) -> bool {
        self == Priority::Reply
    }

    pub fn from_name(name: &str) -> Option<Priority> {
        Priority::ALL.into_iter().find(|priority| priority.name() == name)
    }
}

/// The status of a message that came in: hapax has taken it, whoever else has, and it is read once its thread was marked so. Numbers are
/// the store's, in the order accepted.
pub fn status_of_inbound(number: u64, read_to: u64) -> Status {
    if number <= read_to { Status::Read } else { Status::Delivered }
}

/// When each status was first heard of, and what follows for the message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps(Vec<(Status, i64)>);

impl Steps {
    pub fn new(steps: Vec<(Status, i64)>) -> Self {
        let mut sorted = Self::default();
        for (status, at_ms) in steps {
            sorted.hear(status, at_ms);
        }
        sorted
    }

    /// Takes note of a status; of several times the earliest is kept. The order of hearing does not matter.
    pub fn hear(&mut self, status: Status, at_ms: i64) {
        match self.0.iter_mut().find(|(known, _)| *known == status) {
            Some((_, known_ms)) => *known_ms = at_ms.min(*known_ms),
            None => {
                self.0.push((status, at_ms));
                self.0.sort_by_key(|(status, _)| status.rank());
            }
        }
    }

    /// Takes back what only said where in the outbox it stood.
    pub fn leave_queue(&mut self) {
        self.0.retain(|(status, _)| !matches!(status, Status::Sending | Status::Unknown));
    }

    /// The status all of it adds up to.
    pub fn status(&self) -> Status {
        self.0.iter().fold(Status::Queued, |sum, (status, _)| sum.join(*status))
    }

    /// By status, in the order of the steps.
    pub fn iter(&self) -> impl Iterator<Item = (Status, i64)> {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_120_orders_of_five_statuses_end_alike() {
        let five = [(Status::Sent, 10), (Status::Delivered, 20), (Status::Read, 30), (Status::Failed, 15), (Status::Sent, 12)];
        let mut orders = Vec::new();
        permute(&mut five.to_vec(), 0, &mut orders);
        assert_eq!(orders.len(), 120);
        let first = Steps::new(orders[0].clone());
        assert_eq!(first.status(), Status::Read);
        assert!(orders.into_iter().all(|order| Steps::new(order) == first));
    }

    fn permute(items: &mut Vec<(Status, i64)>, at: usize, orders: &mut Vec<Vec<(Status, i64)>>) {
        if at == items.len() {
            orders.push(items.clone());
        }
        for other in at..items.len() {
            items.swap(at, other);
            permute(items, at + 1, orders);
            items.swap(at, other);
        }
    }
}
