//! Tests an emulator with IAM policies: a role may do what its policies allow, and everything else is refused as in
//! DynamoDB.

use serde_json::{Value, json};
use tally_emulator::{Config, Policies};

use crate::malformed::Server;
use crate::raw::{call, kind, table};

/// A server with these tables with the key `id`, and the role `Writer`.
async fn serve(tables: &[&str]) -> Server {
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
    let policies = Some(Policies::of(&template).unwrap());
    let server = Server::with(Config { policies, ..Config::default() }).await;
    for name in tables {
        call(&server.emulator, "CreateTable", table(name, &[("id", "S")])).await.unwrap();
    }
    server
}

/// The answer to a request of a role.
async fn asked(server: &Server, role: &str, operation: &str, request: Value) -> Result<Value, Value> {
    let headers = format!(
        "X-Amz-Target: DynamoDB_20120810.{operation}\r\nAuthorization: AWS4-HMAC-SHA256 Credential={role}/20260101\r\n"
    );
    let answer = server.request(&headers, request.to_string().as_bytes()).await;
    if answer.status == 200 { Ok(answer.body) } else { Err(answer.body) }
}

#[tokio::test]
async fn a_role_may_only_do_what_its_policies_allow() {
    let server = serve(&["t-rows", "t-state"]).await;
    let put = |table: &str| json!({"TableName": table, "Item": {"id": {"S": "1"}}});
    asked(&server, "Writer", "PutItem", put("t-rows")).await.unwrap();
    let refused = asked(&server, "Writer", "PutItem", put("t-state")).await.unwrap_err();
    assert_eq!(
        (kind(&refused), refused["Message"].as_str().unwrap()),
        (
            "AccessDeniedException",
            "User: arn:aws:sts::000000000000:assumed-role/Writer/local is not authorized to perform: dynamodb:PutItem on \
             resource: arn:aws:dynamodb:us-east-1:000000000000:table/t-state because no identity-based policy allows the \
             dynamodb:PutItem action"
        )
    );
    let get = json!({"TableName": "t-state", "Key": {"id": {"S": "1"}}, "ConsistentRead": true});
    assert_eq!(asked(&server, "Writer", "GetItem", get).await, Ok(json!({})), "what was refused was not done");
    let both = json!({"TransactItems": [{"Put": put("t-rows")}, {"Put": put("t-state")}]});
    assert_eq!(kind(&asked(&server, "Writer", "TransactWriteItems", both).await.unwrap_err()), "AccessDeniedException");
    let unknown = asked(&server, "Reader", "ListTables", json!({})).await.unwrap_err();
    assert_eq!(kind(&unknown), "UnrecognizedClientException");
    assert_eq!(
        server.emulator.unused_grants(),
        [
            "Writer: dynamodb:GetItem on *rows",
            "Writer: dynamodb:PartiQLInsert on *likes",
            "Writer: dynamodb:PartiQLSelect on *likes"
        ]
    );
    assert_eq!(server.emulator.refused(), [("Writer: dynamodb:PutItem on t-state".to_owned(), 2)].into());
}

#[tokio::test]
async fn a_statement_needs_the_permission_for_its_action_on_its_table() {
    let server = serve(&["likes"]).await;
    for (text, refused) in [
        ("INSERT INTO likes VALUE {'id': '1'}", None),
        ("SELECT * FROM likes WHERE id = '1'", None),
        ("INSERT INTO \"rows\" VALUE {'id': '1'}", Some("AccessDeniedException")),
        ("UPDATE likes SET n = 1 WHERE id = '1'", Some("AccessDeniedException")),
        ("DELETE FROM likes WHERE id = '1'", Some("AccessDeniedException")),
        ("no statement", Some("ValidationException")),
    ] {
        let answer = asked(&server, "Writer", "ExecuteStatement", json!({"Statement": text})).await;
        assert_eq!(answer.as_ref().err().map(kind), refused, "{text}");
    }
    let statements = ["INSERT INTO likes VALUE {'id': '2'}", "DELETE FROM likes WHERE id = '1'"];
    let request = json!({"Statements": statements.map(|text| json!({"Statement": text}))});
    let answer = asked(&server, "Writer", "BatchExecuteStatement", request).await.unwrap();
    let code = |nth: usize| &answer["Responses"][nth]["Error"]["Code"];
    assert_eq!((code(0), code(1)), (&Value::Null, &json!("AccessDenied")));
    assert_eq!(server.emulator.stats().tables["likes"].items, 2, "what was refused was not done");
    assert_eq!(server.emulator.refused()["Writer: dynamodb:PartiQLDelete on likes"], 2);
}
