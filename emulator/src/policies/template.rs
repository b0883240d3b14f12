//! Reads the roles of a CloudFormation template and what their policies allow in DynamoDB. Statements about other
//! services are ignored. Anything that is not understood and could change a decision is an error.

use std::collections::BTreeMap;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::{Grant, Policies, ROOT};

impl Policies {
    /// Reads the roles of a CloudFormation template.
    ///
    /// # Errors
    /// There are no roles, or a statement is not supported.
    pub fn of(template: &Value) -> anyhow::Result<Self> {
        let mut roles = BTreeMap::new();
        for (role, resource) in template["Resources"].as_object().into_iter().flatten() {
            if resource["Type"] != "AWS::IAM::Role" {
                continue;
            }
            ensure!(role != ROOT, "{role}: `root` is the access key that may do everything");
            let mut grants = Vec::new();
            for policy in mappings(&resource["Properties"]["Policies"]) {
                for statement in mappings(&policy["PolicyDocument"]["Statement"]) {
                    grants.extend(grants_of(statement).with_context(|| role.clone())?);
                }
            }
            if !grants.is_empty() {
                roles.insert(role.clone(), grants);
            }
        }
        ensure!(!roles.is_empty(), "it has no role with a statement about DynamoDB");
        Ok(Self(roles))
    }
}

/// The mappings of a list, including those on both sides of an `!If`, which is read as a nested list.
fn mappings(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(_) => vec![value],
        Value::Array(values) => values.iter().flat_map(mappings).collect(),
        _ => Vec::new(),
    }
}

/// A value, which may stand for a list of one.
fn list(value: &Value) -> &[Value] {
    match value {
        Value::Null => &[],
        Value::Array(values) => values,
        one => std::slice::from_ref(one),
    }
}

/// Each action of a statement on each of its resources.
fn grants_of(statement: &Value) -> anyhow::Result<Vec<Grant>> {
    let fields = statement.as_object().context("no mapping")?;
    let texts = |name: &str| -> anyhow::Result<Vec<String>> {
        let text =
            |value: &Value| value.as_str().map(as_pattern).with_context(|| format!("{name}: {value} is not a string"));
        list(&statement[name]).iter().map(text).collect()
    };
    ensure!(fields.contains_key("Action"), "a statement has no Action");
    let actions = texts("Action")?;
    if !actions.iter().any(|action| action.starts_with("dynamodb:") || action.starts_with('*')) {
        return Ok(Vec::new());
    }
    let unknown = fields.keys().find(|field| !["Sid", "Effect", "Action", "Resource"].contains(&field.as_str()));
    if let Some(field) = unknown {
        bail!("{field} of a statement about DynamoDB is not supported");
    }
    ensure!(statement["Effect"] == "Allow", "Effect: {} is not supported", statement["Effect"]);
    let resources = texts("Resource")?;
    let each = actions.iter().flat_map(|action| resources.iter().map(move |resource| (action, resource)));
    Ok(each.map(|(action, resource)| Grant { action: action.clone(), resource: resource.clone() }).collect())
}

/// A text of a template as a pattern. A parameter may stand for anything.
fn as_pattern(text: &str) -> String {
    let mut pattern = String::new();
    let mut rest = text;
    while let Some((before, from)) = rest.split_once("${") {
        pattern.push_str(before);
        pattern.push('*');
        rest = from.split_once('}').map_or("", |(_, after)| after);
    }
    pattern + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::json;

    fn role(statement: &Value) -> Value {
        let policy = json!({"PolicyName": "p", "PolicyDocument": {"Statement": [statement]}});
        json!({"Resources": {"Reader": {"Type": "AWS::IAM::Role", "Properties": {"Policies": [policy]}}}})
    }

    #[test]
    fn parameters_match_anything_and_other_services_are_ignored() {
        let arn = "arn:${AWS::Partition}:dynamodb:${AWS::Region}:${AWS::AccountId}:table/${Prefix}likes";
        let statement = json!({"Effect": "Allow", "Action": ["dynamodb:GetItem"], "Resource": arn});
        let policies = Policies::of(&role(&statement)).unwrap();
        let grant = Grant { action: "dynamodb:GetItem".into(), resource: "arn:*:dynamodb:*:*:table/*likes".into() };
        assert_eq!(policies, Policies([("Reader".to_owned(), vec![grant])].into()));
        let choice = json!(["HasKey", statement, "AWS::NoValue"]);
        assert_eq!(Policies::of(&role(&choice)).unwrap(), policies, "a choice grants what either side does");
        let other = json!({"Effect": "Deny", "Action": "logs:PutLogEvents", "Resource": "*", "Condition": {}});
        assert!(Policies::of(&role(&other)).unwrap_err().to_string().contains("no role"));
    }

    #[test]
    fn unsupported_statements_are_refused() {
        for (statement, why) in [
            (json!({"Effect": "Deny", "Action": "dynamodb:GetItem", "Resource": "x"}), "Effect"),
            (json!({"Effect": "Allow", "Action": "dynamodb:GetItem", "NotResource": "x"}), "NotResource"),
            (json!({"Effect": "Allow", "Action": "*", "Resource": "x", "Condition": {}}), "Condition"),
            (json!({"Effect": "Allow", "NotAction": "dynamodb:GetItem", "Resource": "x"}), "has no Action"),
            (json!({"Effect": "Allow", "Action": "dynamodb:GetItem", "Resource": [{"a": "b"}]}), "is not a string"),
        ] {
            let refused = format!("{:#}", Policies::of(&role(&statement)).unwrap_err());
            assert!(refused.starts_with("Reader: ") && refused.contains(why), "{refused}");
        }
    }
}
