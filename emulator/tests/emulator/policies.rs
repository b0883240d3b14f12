//! A server under policies, through the SDK: a role may do what its policies allow, and the rest is refused as DynamoDB does.

use aws_config::Region;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};
use aws_sdk_dynamodb::error::ProvideErrorMetadata as _;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BatchStatementErrorCodeEnum, BatchStatementRequest, BillingMode,
    ConditionCheck, KeySchemaElement, KeyType, Put, ScalarAttributeType, TransactWriteItem,
};
use serde_json::json;
use tally_emulator::{Config, Emulator, Policies, ROOT};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A server on a port of its own, and a client of it for each access key.
async fn serve() -> (Emulator, impl Fn(&str) -> Client, JoinSet<std::io::Result<()>>) {
    let allow = |actions: &[&str], table: &str| {
        let table = format!(
            "arn:${{AWS::Partition}}:dynamodb:${{AWS::Region}}:${{AWS::AccountId}}:table/${{TablePrefix}}{table}"
        );
        json!({"Effect": "Allow", "Action": actions, "Resource": table})
    };
    let statements = [
        allow(&["dynamodb:GetItem", "dynamodb:PutItem"], "rows"),
        allow(&["dynamodb:GetItem"], "state"),
        allow(&["dynamodb:PartiQLInsert", "dynamodb:PartiQLSelect"], "likes"),
    ];
    let policies = json!([{"PolicyName": "tables", "PolicyDocument": {"Statement": statements}}]);
    let template = json!({"Resources": {"Writer": {"Type": "AWS::IAM::Role", "Properties": {"Policies": policies}}}});
    let policies = Policies::of(&template).unwrap();
    let emulator = Emulator::new(Config { policies: Some(policies), ..Config::default() });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = emulator.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { server.serve(listener, std::future::pending()).await });
    let client = move |key: &str| {
        let credentials = Credentials::new(key, "secret", None, None, "test");
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version_latest()
            .endpoint_url(&url)
            .region(Region::new("us-east-1"))
            .credentials_provider(SharedCredentialsProvider::new(credentials));
        Client::from_conf(config.build())
    };
    (emulator, client, tasks)
}

async fn create(client: &Client, table: &str) -> Result<(), String> {
    let id =
        AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S).build().unwrap();
    let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash).build().unwrap();
    let create = client.create_table().table_name(table).attribute_definitions(id).key_schema(key);
    let created = create.billing_mode(BillingMode::PayPerRequest).send().await;
    created.map(drop).map_err(|error| error.code().unwrap_or_default().to_owned())
}

fn id(of: &str) -> AttributeValue {
    AttributeValue::S(of.to_owned())
}

#[tokio::test]
async fn a_role_may_do_what_its_policies_allow_and_nothing_else() {
    let (emulator, client, _server) = serve().await;
    let (root, writer) = (client(ROOT), client("Writer"));
    for table in ["t-rows", "t-state"] {
        create(&root, table).await.unwrap();
    }
    assert_eq!(create(&writer, "t-other").await, Err("AccessDeniedException".to_owned()));

    writer.put_item().table_name("t-rows").item("id", id("1")).send().await.unwrap();
    let refused = writer.put_item().table_name("t-state").item("id", id("1")).send().await.unwrap_err();
    assert_eq!(refused.code(), Some("AccessDeniedException"));
    assert_eq!(
        refused.message(),
        Some(
            "User: arn:aws:sts::000000000000:assumed-role/Writer/local is not authorized to perform: dynamodb:PutItem on \
             resource: arn:aws:dynamodb:us-east-1:000000000000:table/t-state because no identity-based policy allows the \
             dynamodb:PutItem action"
        )
    );
    let read = writer.get_item().table_name("t-state").key("id", id("1")).send().await.unwrap();
    assert!(read.item.is_none(), "what was refused was not done");
    assert_eq!(
        emulator.unused_grants(),
        [
            "Writer: dynamodb:GetItem on *rows",
            "Writer: dynamodb:PartiQLInsert on *likes",
            "Writer: dynamodb:PartiQLSelect on *likes"
        ]
    );
    let refused: Vec<_> = emulator.refused().into_iter().collect();
    assert_eq!(
        refused,
        [
            ("Writer: dynamodb:CreateTable on t-other".to_owned(), 1),
            ("Writer: dynamodb:PutItem on t-state".to_owned(), 1)
        ]
    );
}

#[tokio::test]
async fn a_transaction_needs_what_each_of_its_actions_needs_alone() {
    let (_, client, _server) = serve().await;
    let (root, writer) = (client(ROOT), client("Writer"));
    for table in ["rows", "state"] {
        create(&root, table).await.unwrap();
    }
    let put = |table: &str| {
        let put = Put::builder().table_name(table).item("id", id("1")).build().unwrap();
        TransactWriteItem::builder().put(put).build()
    };
    writer.transact_write_items().transact_items(put("rows")).send().await.unwrap();
    let check =
        ConditionCheck::builder().table_name("state").key("id", id("1")).condition_expression("attribute_exists(id)");
    let check = TransactWriteItem::builder().condition_check(check.build().unwrap()).build();
    for other in [put("state"), check] {
        let both = writer.transact_write_items().transact_items(put("rows")).transact_items(other).send().await;
        assert_eq!(both.unwrap_err().code(), Some("AccessDeniedException"));
    }
}

#[tokio::test]
async fn a_statement_needs_the_action_of_its_kind_on_its_table() {
    let (emulator, client, _server) = serve().await;
    let (root, writer) = (client(ROOT), client("Writer"));
    for table in ["likes", "rows"] {
        create(&root, table).await.unwrap();
    }
    let run = async |text: &str| {
        let answer = writer.execute_statement().statement(text).send().await;
        answer.map(|_| ()).map_err(|error| error.code().unwrap_or_default().to_owned())
    };
    let denied = Err("AccessDeniedException".to_owned());
    assert_eq!(run("INSERT INTO likes VALUE {'id': '1'}").await, Ok(()));
    assert_eq!(run("SELECT * FROM likes WHERE id = '1'").await, Ok(()));
    assert_eq!(run("INSERT INTO \"rows\" VALUE {'id': '1'}").await, denied);
    assert_eq!(run("UPDATE likes SET n = 1 WHERE id = '1'").await, denied);
    assert_eq!(run("DELETE FROM likes WHERE id = '1'").await, denied);
    assert_eq!(run("no statement").await, Err("ValidationException".to_owned()));

    let statement = |text: &str| BatchStatementRequest::builder().statement(text).build().unwrap();
    let insert = || statement("INSERT INTO likes VALUE {'id': '2'}");
    let both = writer.batch_execute_statement().statements(insert());
    let answer = both.statements(statement("DELETE FROM likes WHERE id = '1'")).send().await.unwrap();
    let codes: Vec<_> =
        answer.responses().iter().map(|outcome| outcome.error().and_then(|error| error.code())).collect();
    assert_eq!(codes, [None, Some(&BatchStatementErrorCodeEnum::AccessDenied)]);
    assert_eq!(emulator.stats().tables["likes"].items, 2, "what was refused was not done");
    assert_eq!(emulator.refused()["Writer: dynamodb:PartiQLDelete on likes"], 2);
}

#[tokio::test]
async fn a_key_that_names_no_role_is_not_known() {
    let (_, client, _server) = serve().await;
    let refused = client("Reader").list_tables().send().await.unwrap_err();
    assert_eq!(refused.code(), Some("UnrecognizedClientException"));
}
