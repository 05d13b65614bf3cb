//! The status of a message and the one rule by which it moves: only forward.

/// How far a message has come. Ordered: a later status includes the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    Queued,
    Sending,
    /// Sent or not, nobody knows yet.
    Unknown,
    Sent,
    Failed,
    Delivered,
    Read,
    Played,
}

impl Status {
    pub const ALL: [Status; 8] = [
        Status::Queued,
        Status::Sending,
        Status::Unknown,
        Status::Sent,
        Status::Failed,
        Status::Delivered,
        Status::Read,
        Status::Played,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Status::Queued => "queued",
            Status::Sending => "sending",
            Status::Unknown => "unknown",
            Status::Sent => "sent",
            Status::Failed => "failed",
            Status::Delivered => "delivered",
            Status::Read => "read",
            Status::Played => "played",
        }
    }

    pub fn from_name(name: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Joins what was known with what was just heard. The order of hearing does not matter.
    ///
    /// The steps stand in one line, `failed` between `sent` and `delivered`: a failure outweighs "sent", and whoever has the message
    /// on the phone outweighs the failure.
    #[must_use]
    pub fn join(self, heard: Status) -> Status {
        if heard.rank() > self.rank() { heard } else { self }
    }

    pub(super) fn rank(self) -> u8 {
        match self {
            Status::Queued => 0,
            Status::Sending => 1,
            Status::Unknown => 2,
            Status::Sent => 3,
            Status::Failed => 4,
            Status::Delivered => 5,
            Status::Read => 6,
            Status::Played => 7,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joining_is_a_semilattice() {
        for a in Status::ALL {
            assert_eq!(a.join(a), a);
            for b in Status::ALL {
                assert_eq!(a.join(b), b.join(a), "{a:?} {b:?}");
                for c in Status::ALL {
                    assert_eq!(a.join(b).join(c), a.join(b.join(c)));
                }
            }
        }
    }

    #[test]
    fn a_late_sent_never_overwrites_read() {
        assert_eq!(Status::Read.join(Status::Sent), Status::Read);
        assert_eq!(Status::Delivered.join(Status::Failed), Status::Delivered);
        assert_eq!(Status::Sent.join(Status::Failed), Status::Failed);
    }
}
