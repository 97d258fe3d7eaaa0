//! The part of SQS that reads a queue: GetQueueUrl, ReceiveMessage, DeleteMessage, DeleteMessageBatch.

use serde_json::{Map, Value, json};

use crate::clock::{later, seconds};
use crate::operations::{Call, Reply};
use crate::protocol::error::ApiError;
use crate::protocol::md5;
use crate::state::World;

pub(super) fn queue_url(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let name = call.form.required("QueueName")?;
    if name != world.scenario.queue.name {
        return Err(no_queue());
    }
    Ok(Reply::json(json!({"QueueUrl": format!("http://{}/{}/{name}", call.host, world.scenario.account)})))
}

pub(super) fn receive(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    check_queue(world, call)?;
    let number = |name: &str, most: u32, default: u32| match call.form.number(name)? {
        Some(n) if n > most => Err(ApiError::value(name, &n.to_string())),
        given => Ok(given.unwrap_or(default)),
    };
    let most = number("MaxNumberOfMessages", 10, 1)?;
    if most == 0 {
        return Err(ApiError::value("MaxNumberOfMessages", "0"));
    }
    number("WaitTimeSeconds", 20, 0)?;
    let hidden = number("VisibilityTimeout", 43_200, world.scenario.queue.visibility_timeout_seconds)?;
    let until = later(call.now, seconds(f64::from(hidden)));
    let World { queue, ids, .. } = world;
    let received = queue.receive(most as usize, call.now, until, || format!("{}{}", ids.uuid(), ids.uuid()));
    let mut wanted = call.form.list("AttributeNames");
    wanted.extend(call.form.list("MessageSystemAttributeNames"));
    let mut reply = Reply::default();
    let messages: Vec<Value> = received
        .into_iter()
        .map(|message| {
            let mut attributes = Map::new();
            let millis = |at: jiff::Timestamp| at.as_millisecond().to_string();
            for (name, value) in [
                ("SentTimestamp", Some(millis(message.sent_at))),
                ("ApproximateReceiveCount", Some(message.received.to_string())),
                ("ApproximateFirstReceiveTimestamp", message.first_received_at.map(millis)),
                ("SenderId", Some("events.amazonaws.com".to_owned())),
            ] {
                if let Some(value) = value
                    && wanted.iter().any(|w| w == name || w == "All")
                {
                    attributes.insert(name.to_owned(), value.into());
                }
            }
            reply.resources.push(message.id.clone());
            let mut json = json!({
                "MessageId": message.id,
                "ReceiptHandle": message.receipt,
                "MD5OfBody": md5::hex(message.body.as_bytes()),
                "Body": message.body,
            });
            if !attributes.is_empty() {
                json["Attributes"] = attributes.into();
            }
            json
        })
        .collect();
    // Without messages the member is excluded.
    let body = if messages.is_empty() { json!({}) } else { json!({"Messages": messages}) };
    reply.json = Some(body);
    Ok(reply)
}

pub(super) fn delete(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    check_queue(world, call)?;
    world.queue.delete(call.form.required("ReceiptHandle")?);
    Ok(Reply::json(json!({})))
}

pub(super) fn delete_batch(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    check_queue(world, call)?;
    let entries = call.form.structs("Entries");
    if entries.is_empty() {
        return Err(ApiError::client("EmptyBatchRequest", "There should be at least one entry in the request."));
    }
    if entries.len() > 10 {
        return Err(ApiError::client("TooManyEntriesInBatchRequest", "Maximum number of entries per request are 10."));
    }
    let mut ids = std::collections::BTreeSet::new();
    let mut done = Vec::new();
    for entry in &entries {
        let id = entry.required("Id")?;
        if !ids.insert(id) {
            return Err(ApiError::client("BatchEntryIdsNotDistinct", format!("Id {id} repeated.")));
        }
        world.queue.delete(entry.required("ReceiptHandle")?);
        done.push(json!({"Id": id}));
    }
    Ok(Reply::json(json!({"Successful": done, "Failed": []})))
}

fn check_queue(world: &World, call: &Call<'_>) -> Result<(), ApiError> {
    let url = call.form.required("QueueUrl")?;
    let path = format!("/{}/{}", world.scenario.account, world.scenario.queue.name);
    if url.ends_with(&path) { Ok(()) } else { Err(no_queue()) }
}

fn no_queue() -> ApiError {
    ApiError::client("QueueDoesNotExist", "The specified queue does not exist.")
}
