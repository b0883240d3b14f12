//! Claims: a courtesy that keeps two workers from doing the same work. Nothing that must be right relies on them.

use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;
use tally_core::ports::{Claimed, Outcome, Worker};
use tally_core::time::UnixMillis;

use super::super::expression::Aliases;
use super::super::fault::{fault, unless_refused};
use super::super::item::{Reader, flag};
use super::super::names::recounts::{AT, DONE, OWNER, TTL};
use super::{Recounts, WEEK, expiry, key};

/// Where claims are kept.
const CLAIMS: &str = "claim";

impl Recounts {
    /// Safe to repeat: a worker's own claim is renewed.
    pub(super) async fn take(
        &self,
        what: &str,
        worker: &Worker,
        now: UnixMillis,
        stale: UnixMillis,
    ) -> Outcome<Claimed> {
        let mut say = Aliases::default();
        let [owner, at, done, ttl] = say.names([OWNER, AT, DONE, TTL]);
        let (ours, beat, oldest) = (say.text(worker.0.as_str()), say.number(now), say.number(stale));
        let expires = say.value(expiry(now, WEEK));
        let (names, values) = say.finish();
        let sent = self
            .connection
            .client
            .update_item()
            .table_name(self.table())
            .set_key(Some(key(CLAIMS, what)))
            .update_expression(format!("SET {owner}={ours},{at}={beat},{ttl}={expires}"))
            .condition_expression(format!(
                "attribute_not_exists({done}) AND (attribute_not_exists({owner}) OR {owner}={ours} OR {at}<{oldest})"
            ))
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        let Err(error) = sent else { return Ok(Claimed::Claimed) };
        let Some(UpdateItemError::ConditionalCheckFailedException(refusal)) = error.as_service_error() else {
            return Err(fault(self.table(), &error));
        };
        let is_done = refusal.item().map_or(Ok(false), |item| Reader::new(self.table(), item).flag(DONE))?;
        Ok(if is_done { Claimed::Done } else { Claimed::Taken })
    }

    /// Safe to repeat: done stays done, and a claim given back has no owner.
    pub(super) async fn give_back(&self, what: &str, worker: &Worker, done: bool) -> Outcome<()> {
        let mut say = Aliases::default();
        let (owner, ours) = (say.name(OWNER), say.text(worker.0.as_str()));
        let name = say.name(DONE);
        if !done {
            let condition = format!("{owner}={ours} AND attribute_not_exists({name})");
            return self.delete_if(CLAIMS, what, say, condition).await;
        }
        let yes = say.value(flag(true));
        let (names, values) = say.finish();
        let update = self
            .connection
            .client
            .update_item()
            .table_name(self.table())
            .set_key(Some(key(CLAIMS, what)))
            .update_expression(format!("SET {name}={yes}"))
            .condition_expression(format!("{owner}={ours}"))
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values);
        unless_refused(self.table(), update.send().await).map(|_| ())
    }
}
