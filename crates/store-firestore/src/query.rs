//! Structured queries, built from the few things hapax asks.

use serde_json::{Value, json};

#[derive(Clone, Debug)]
pub(super) struct Query {
    collection: &'static str,
    filters: Vec<Value>,
    order: Vec<Value>,
    after: Option<Vec<Value>>,
    select: Option<Vec<Value>>,
    limit: Option<usize>,
}

impl Query {
    pub(super) fn new(collection: &'static str) -> Self {
        Self { collection, filters: vec![], order: vec![], after: None, select: None, limit: None }
    }

    fn filter(mut self, field: &str, op: &str, value: Value) -> Self {
        self.filters.push(json!({ "fieldFilter": { "field": { "fieldPath": field }, "op": op, "value": value } }));
        self
    }

    pub(super) fn equal(self, field: &str, value: Value) -> Self {
        self.filter(field, "EQUAL", value)
    }

    pub(super) fn equal_if(self, field: &str, value: Option<Value>) -> Self {
        match value {
            Some(value) => self.equal(field, value),
            None => self,
        }
    }

    /// At most [`super::client::IN_MAX`] values.
    pub(super) fn any_of(self, field: &str, values: Vec<Value>) -> Self {
        self.filter(field, "IN", super::value::list(values))
    }

    pub(super) fn contains(self, field: &str, value: Value) -> Self {
        self.filter(field, "ARRAY_CONTAINS", value)
    }

    pub(super) fn above(self, field: &str, value: Option<Value>) -> Self {
        match value {
            Some(value) => self.filter(field, "GREATER_THAN", value),
            None => self,
        }
    }

    pub(super) fn below(self, field: &str, value: Option<Value>) -> Self {
        match value {
            Some(value) => self.filter(field, "LESS_THAN", value),
            None => self,
        }
    }

    pub(super) fn at_most(self, field: &str, value: Value) -> Self {
        self.filter(field, "LESS_THAN_OR_EQUAL", value)
    }

    fn by(mut self, field: &str, direction: &str) -> Self {
        self.order.push(json!({ "field": { "fieldPath": field }, "direction": direction }));
        self
    }

    pub(super) fn lowest_first(self, field: &str) -> Self {
        self.by(field, "ASCENDING")
    }

    pub(super) fn highest_first(self, field: &str) -> Self {
        self.by(field, "DESCENDING")
    }

    /// Goes on behind a row with these values of the fields that it is ordered by.
    pub(super) fn behind(mut self, values: Option<Vec<Value>>) -> Self {
        self.after = values;
        self
    }

    /// Only these fields of each document.
    pub(super) fn only(mut self, fields: &[&str]) -> Self {
        self.select = Some(fields.iter().map(|field| json!({ "fieldPath": field })).collect());
        self
    }

    pub(super) fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    pub(super) fn written(&self) -> Value {
        let mut query = json!({ "from": [{ "collectionId": self.collection }] });
        match self.filters.as_slice() {
            [] => {}
            [one] => query["where"] = one.clone(),
            several => query["where"] = json!({ "compositeFilter": { "op": "AND", "filters": several } }),
        }
        if !self.order.is_empty() {
            query["orderBy"] = Value::Array(self.order.clone());
        }
        if let Some(after) = &self.after {
            query["startAt"] = json!({ "values": after, "before": false });
        }
        if let Some(select) = &self.select {
            query["select"] = json!({ "fields": select });
        }
        if let Some(limit) = self.limit {
            query["limit"] = limit.into();
        }
        query
    }
}
