//! The Helm chart, the Kustomize base and the compose file.

use std::path::{Path, PathBuf};

use duetime_testkit::servers::{EtcdServers, RedisServer, write_certificates};
use duetime_testkit::webhook::Webhook;

use super::{PROGRAM, command, done, ran, root};

fn cases(end: &str) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = std::fs::read_dir(root().join("deploy/helm/cases"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|is| is == end))
        .collect();
    all.sort();
    all
}

#[test]
fn the_chart_makes_what_was_read_and_kept_for_each_set_of_values() {
    let folder = tempfile::tempdir().unwrap();
    done(command("deploy/helm/render").arg(folder.path()));
    assert!(cases("yaml").len() >= 5);
    for case in cases("yaml") {
        let kept = std::fs::read_to_string(case.with_extension("golden")).unwrap_or_default();
        let name = case.with_extension("golden");
        let made = std::fs::read_to_string(folder.path().join(name.file_name().unwrap())).unwrap();
        assert!(made == kept, "{}: read what the chart makes now, then keep it: deploy/helm/render", case.display());
    }
}

/// Whether the chart makes something of a case with these values instead, and what helm printed.
fn with(case: &str, sets: &[&str]) -> (bool, String) {
    let mut helm = command("helm");
    helm.args(["template", "x", "deploy/helm/duetime", "--values"]).arg(format!("deploy/helm/cases/{case}.yaml"));
    for set in sets {
        helm.args(["--set", set]);
    }
    ran(&mut helm)
}

#[test]
fn values_that_cannot_work_are_refused_by_name() {
    let refusals: [(&str, &[&str], &str); 40] = [
        ("embedded", &["replicas=2"], "round-robin"),
        ("embedded", &["auth.tokens=null"], "tokens"),
        ("embedded", &["colour=red"], "colour"),
        ("embedded", &["store.kind=redis"], "urlSecret"),
        ("embedded", &["ownership.mode=etcd"], "etcd"),
        ("embedded", &["autoscaling.enabled=true"], "autoscaling"),
        ("embedded", &["store.kind=redis", "store.redis.urlSecret.name=r", "replicas=3"], "ownership"),
        ("embedded", &["auth.tokens[0].name=a", "auth.tokens[0].hash=plain", "auth.tokens[0].scopes={admin}"], "hash"),
        ("embedded", &["serviceMonitor.enabled=true"], "serviceMonitor.tokenSecret.name: /metrics asks for a token"),
        ("embedded", &["serviceMonitor.tlsConfig.serverName=x"], "serviceMonitor.tlsConfig: the nodes speak no TLS"),
        ("embedded", &["serviceMonitor.labels.release=true"], "/serviceMonitor/labels/release"),
        ("embedded", &["prometheusRule.labels.app\\.kubernetes\\.io/name=x"], "prometheusRule.labels: app"),
        ("embedded", &["prometheusRule.runbooks=docs/RUNBOOKS.md"], "/prometheusRule/runbooks"),
        ("embedded", &["env[0].name=A"], "env: A wants either value or valueFrom"),
        ("embedded", &["env[0].name=A", "env[0].value=1"], "/env/0/value"),
        ("embedded", &["env[0].name=DUETIME_NODE_ID", "env[0].value=x"], "/env/0/name"),
        ("embedded", &["envFrom[0].secret=x"], "/envFrom/0"),
        ("embedded", &["commonLabels.helm\\.sh/chart=x"], "commonLabels: helm.sh/chart is a label of the chart's own"),
        ("embedded", &["commonLabels.team=shop", "podLabels.team=x"], "podLabels: team is a label of all objects"),
        ("embedded", &["commonLabels.team=1"], "/commonLabels/team"),
        ("embedded", &["dashboards.annotations.a=1"], "/dashboards/annotations/a"),
        ("embedded", &["podLabels.app\\.kubernetes\\.io/instance=x"], "podLabels: app.kubernetes.io/instance is"),
        ("embedded", &["podAnnotations.a=1"], "/podAnnotations/a"),
        ("embedded", &["podAnnotations.checksum/config=x"], "podAnnotations: checksum/config is"),
        ("embedded", &["service.annotations.a=true"], "/service/annotations/a"),
        ("embedded", &["service.type=LoadBalancer"], "networkPolicy.from: the policy would keep out"),
        ("embedded", &["nodeSelector.a=1"], "/nodeSelector/a"),
        ("embedded", &["tolerations[0].keys=x"], "keys"),
        ("embedded", &["affinity.podAntiAffinities=x"], "podAntiAffinities"),
        ("embedded", &["topologySpreadConstraints[0].maxSkew=1"], "topologyKey"),
        ("embedded", &["priorityClassName=1"], "/priorityClassName"),
        ("embedded", &["ingress.enabled=true"], "/ingress/hosts"),
        ("embedded", &["ingress.enabled=true", "ingress.hosts={a.example}"], "would keep the ingress controller out"),
        ("embedded", &["ingress.hosts={https://a.example}"], "/ingress/hosts/0"),
        ("embedded", &["networkPolicy.from[0].namespace=x"], "/networkPolicy/from/0"),
        ("fitted", &["serviceMonitor.tlsConfig=null"], "serviceMonitor.tlsConfig: Prometheus asks pods"),
        ("fitted", &["networkPolicy.prometheus=null"], "networkPolicy.prometheus: the policy would keep"),
        ("redis-etcd", &["autoscaling.enabled=true"], "autoscaling.perNode: write the messages a second"),
        ("autoscaled", &["autoscaling.perNode=0"], "/autoscaling/perNode"),
        ("autoscaled", &["autoscaling.max=1"], "autoscaling.max: 1 is below autoscaling.min, 2"),
    ];
    for (case, sets, names) in refusals {
        let (well, printed) = with(case, sets);
        assert!(!well && printed.contains(names), "{sets:?}: {printed}");
    }
    for case in ["redis-etcd", "fitted"] {
        let values = format!("deploy/helm/cases/{case}.yaml");
        done(command("helm").args(["lint", "--strict", "deploy/helm/duetime", "--values", &values]));
    }
}

#[test]
fn the_notes_lead_to_the_node_by_any_port_of_the_service_and_over_tls() {
    for (case, scheme) in [("embedded", "http"), ("embedded-tls", "https")] {
        let values = format!("deploy/helm/cases/{case}.yaml");
        let notes = done(command("helm").args(["install", "x", "deploy/helm/duetime", "--dry-run=client"]).args([
            "--values",
            &values,
            "--set",
            "service.port=8080",
        ]));
        for line in ["port-forward svc/x-duetime 3830:8080", &format!("--node {scheme}://localhost:3830")] {
            assert!(notes.contains(line), "{line}: {notes}");
        }
        assert!(!notes.contains("--token"), "a token in the list of processes: {notes}");
    }
}

#[test]
fn a_secret_without_an_authority_is_spoken_of_where_it_is_met() {
    let notes = |case: &str, sets: &[&str]| {
        let mut helm = command("helm");
        helm.args(["install", "x", "deploy/helm/duetime", "--dry-run=client", "--values"]);
        helm.arg(format!("deploy/helm/cases/{case}.yaml"));
        sets.iter().for_each(|set| _ = helm.args(["--set", set]));
        let printed = done(&mut helm);
        printed.split_once("NOTES:").expect("helm prints the notes").1.to_owned()
    };
    let says = notes("fitted", &[]);
    let asks = r"get secret duetime-tls -o jsonpath='{.data.ca\.crt}'";
    assert!(says.contains(asks) && says.contains("tls.caKey to \"\""), "{says}");
    for (case, sets) in [("fitted", &["tls.caKey="][..]), ("embedded-tls", &[]), ("embedded", &[])] {
        let says = notes(case, sets);
        assert!(!says.contains("caKey"), "no node is asked by another: {says}");
    }
    // What a pod's log shows of it: the complaint of the init container, and the line above the one that it names.
    let (well, printed) = with("fitted", &[]);
    let config = block(&printed, "duetime.toml: |");
    assert!(well && config.contains("tls.caKey of the chart to \"\""), "{printed}");
    let folder = tempfile::tempdir().unwrap();
    write_certificates(folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("url"), "redis://127.0.0.1:1").unwrap();
    let here = config
        .replace("/run/secrets/store/url", &path("url"))
        .replace("/run/tls/tls.crt", &path("server.pem"))
        .replace("/run/tls/tls.key", &path("server.key"))
        .replace("/run/tls/ca.crt", &path("ca.crt"));
    std::fs::write(path("duetime.toml"), here).unwrap();
    let (well, printed) = ran(command(PROGRAM).args(["check-config", "--offline", &path("duetime.toml")]));
    assert!(!well && printed.contains("node.peer_tls") && printed.contains("ca.crt: No such file"), "{printed}");
    // With it all is well, though there is no Redis: a store that is away keeps no pod from starting.
    std::fs::copy(path("ca.pem"), path("ca.crt")).unwrap();
    done(command(PROGRAM).args(["check-config", "--offline", &path("duetime.toml")]));
}

#[test]
fn nodes_with_tls_know_each_other_by_the_name_of_the_service() {
    let at = |sets: &[&str]| {
        let (well, printed) = with("fitted", sets);
        assert!(well, "{printed}");
        printed.lines().find(|line| line.contains("peer_tls")).map(|line| line.trim().to_owned())
    };
    let is = |name: &str| format!("peer_tls = {{ ca_file = \"/run/tls/ca.crt\", server_name = \"{name}\" }}");
    assert_eq!(at(&[]), Some(is("x-duetime.default.svc")));
    assert_eq!(at(&["tls.serverName=duetime.internal.example"]), Some(is("duetime.internal.example")));
    assert_eq!(at(&["tls.caKey="]), None, "a Secret without an authority");
    assert_eq!(at(&["tls.secretName=", "serviceMonitor.tlsConfig=null"]), None);
}

#[test]
fn a_label_for_all_is_on_every_object_and_on_the_pods_and_in_no_selector() {
    let (well, printed) = with("redis-etcd", &["commonLabels.team=shop"]);
    let objects: Vec<&str> = printed.split("\n---\n").filter(|object| object.contains("\nkind: ")).collect();
    assert!(well && objects.len() > 10, "{printed}");
    for object in objects {
        let of_pods = usize::from(object.contains("\nkind: Deployment"));
        assert_eq!(object.matches("team: shop").count(), 1 + of_pods, "{object}");
    }
}

/// What `autoscaling.kind: hpa` makes of the case `autoscaled` in place of the ScaledObject.
const HPA: &str = r#"scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: x-duetime}
minReplicas: 2
maxReplicas: 6
behavior:
  scaleDown:
    stabilizationWindowSeconds: 600
    policies: [{type: Pods, value: 1, periodSeconds: 600}]
  scaleUp:
    stabilizationWindowSeconds: 30
    policies: [{type: Pods, value: 2, periodSeconds: 60}]
# External metrics that prometheus-adapter makes: deploy/prometheus/adapter.yaml.
metrics:
  - type: External
    external:
      metric:
        name: duetime-late-seconds
        selector: &release {matchLabels: {namespace: "default", service: "x-duetime"}}
      target: {type: Value, value: "0.5"}
  - type: External
    external:
      metric: {name: duetime-ahead-per-second, selector: *release}
      target: {type: AverageValue, averageValue: "20000"}"#;

#[test]
fn without_keda_kubernetes_own_autoscaler_gets_the_same_bounds_and_steps() {
    let (well, printed) = with("autoscaled", &["autoscaling.kind=hpa"]);
    assert!(well && !printed.contains("ScaledObject"), "{printed}");
    let at = printed.find("apiVersion: autoscaling/v2").expect("a HorizontalPodAutoscaler");
    assert_eq!(block(&printed[at..], "spec:").trim(), HPA);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hpa.yaml");
    let head = "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: x-duetime}\nspec:\n  ";
    std::fs::write(&file, format!("{head}{}\n", HPA.replace('\n', "\n  "))).unwrap();
    done(command("kubernetes-validate").args(["-k", "1.37", "--strict"]).arg(&file));
}

#[test]
fn a_prometheus_of_another_namespace_reaches_nodes_that_it_is_to_scrape() {
    let operators = "app.kubernetes.io/name: prometheus";
    let (well, printed) = with("embedded", &["auth.metrics=false", "serviceMonitor.enabled=true"]);
    assert!(well && printed.contains(operators), "{printed}");
    let (well, printed) = with("embedded", &[]);
    assert!(well && !printed.contains(operators), "nobody scrapes by this release: {printed}");
}

#[test]
fn every_object_is_one_that_kubernetes_knows() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("base.yaml");
    let built = done(command("kubectl").args(["kustomize", "deploy/kustomize/base"]));
    assert!(built.contains("- check-config\n        - --offline\n"), "no init container reads the file: {built}");
    std::fs::write(&base, built).unwrap();
    for file in cases("golden").into_iter().chain([base]) {
        let printed = done(command("kubernetes-validate").args(["-k", "1.37", "--strict"]).arg(&file));
        assert!(
            printed.contains("passed for resource deployment/") || printed.contains("passed for resource statefulset/"),
            "{printed}"
        );
        // Of objects that are not Kubernetes' own there is no schema.
        let unknown = |line: &&str| {
            line.contains("WARN")
                && !["ScaledObject", "ServiceMonitor", "PrometheusRule"].iter().any(|kind| line.contains(kind))
        };
        assert_eq!(printed.lines().find(unknown), None);
    }
}

/// The block of YAML below a line, without its indentation.
fn block(text: &str, head: &str) -> String {
    let mut lines = text.lines().skip_while(|line| line.trim() != head);
    let indent = lines.next().map_or(0, |line| line.len() - line.trim_start().len());
    let inner = lines.take_while(|line| line.trim().is_empty() || line.len() - line.trim_start().len() > indent);
    inner.map(|line| line.get(indent + 2..).unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn the_configuration_of_each_case_passes_check_config_with_real_servers() {
    let redis = RedisServer::start().await;
    let etcd = EtcdServers::start(1).await;
    let webhook = Webhook::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    write_certificates(folder.path());
    std::fs::write(path("url"), redis.url()).unwrap();
    std::fs::write(path("key"), "whsec_c2VjcmV0LW9mLXRoZS13ZWJob29rLW9mLXRlc3Rz").unwrap();
    let etcd = etcd.urls().first().cloned().unwrap();
    for golden in cases("golden") {
        let text = std::fs::read_to_string(&golden).unwrap();
        let config = block(&text, "duetime.toml: |");
        assert!(config.contains("[store]"), "{}:\n{config}", golden.display());
        let here = config
            .replace("/var/lib/duetime", &path("data"))
            .replace("/run/secrets/store/url", &path("url"))
            .replace("/run/secrets/webhook/key", &path("key"))
            .replace("/run/tls/tls.crt", &path("server.pem"))
            .replace("/run/tls/tls.key", &path("server.key"))
            .replace("/run/tls/ca.crt", &path("ca.pem"))
            .replace("http://etcd-0.etcd:2379", &etcd)
            .replace("http://etcd-1.etcd:2379", &etcd)
            .replace(
                "\"https://shop.example/hooks/timeouts\"",
                &format!("{:?}\nallow = [\"127.0.0.1\"]", webhook.url("/")),
            )
            // No replica follows the server of this test.
            .replace("\"replicas:1\"", "\"memory\"");
        let file = path("duetime.toml");
        std::fs::write(&file, &here).unwrap();
        let (well, printed) = ran(command(PROGRAM).args(["check-config", &file]));
        assert!(well, "{}:\n{printed}\n{here}", golden.display());
    }
}

#[test]
fn the_rules_in_the_chart_are_those_of_prometheus_for_the_job_and_the_runbooks_of_a_release() {
    let rules = std::fs::read_to_string(root().join("deploy/prometheus/duetime.rules.yaml")).unwrap();
    let wanted = rules.replace(r#"job=\"duetime\""#, r#"job=\"default/x-duetime\""#);
    assert!(rules.contains("docs/RUNBOOKS.md") && wanted != rules);
    for (case, runbooks) in [("redis-etcd", "docs/RUNBOOKS.md"), ("fitted", "https://wiki.example/duetime/runbooks")] {
        let (well, printed) = with(case, &[]);
        let object = printed.split("\n---\n").find(|object| object.contains("kind: PrometheusRule"));
        let made = block(object.unwrap_or_else(|| panic!("{printed}")), "spec:");
        assert!(well && made.trim() == wanted.replace("docs/RUNBOOKS.md", runbooks).trim(), "{case}: {printed}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rules.yaml");
        std::fs::write(&file, made).unwrap();
        done(command("promtool").args(["check", "rules"]).arg(&file));
    }
    let golden = std::fs::read_to_string(root().join("deploy/helm/cases/redis-etcd.golden")).unwrap();
    assert_eq!(
        golden.matches("(the file of this name in deploy/grafana)").count(),
        std::fs::read_dir(root().join("deploy/grafana")).unwrap().count(),
        "each dashboard is in the chart"
    );
}

#[test]
fn the_compose_file_and_the_dockerfile_are_well_formed() {
    done(command("check-jsonschema").args(["--builtin-schema", "vendor.compose-spec", "deploy/compose/compose.yaml"]));
    done(command("hadolint").arg("deploy/image/Dockerfile"));
    for mounted in [
        "../prometheus/prometheus.yml",
        "../prometheus/alertmanager.yml",
        "../prometheus/duetime.rules.yaml",
        "../grafana",
        "./duetime.toml",
        "./grafana",
    ] {
        let compose = std::fs::read_to_string(root().join("deploy/compose/compose.yaml")).unwrap();
        assert!(compose.contains(mounted), "{mounted} is not mounted");
        assert!(Path::new(&root().join("deploy/compose").join(mounted)).exists(), "{mounted} is not there");
    }
    done(command("promtool").args(["check", "config", "deploy/prometheus/prometheus.yml"]));
    done(command("amtool").args(["check-config", "deploy/prometheus/alertmanager.yml"]));
}
