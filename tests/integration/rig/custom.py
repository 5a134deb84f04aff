"""What rendered objects of the Prometheus operator, of cert-manager and of KEDA may hold.

Written from the published API references of prometheus-operator v0.93.0 (monitoring.coreos.com/v1) and cert-manager
v1.21.1 (cert-manager.io/v1), and from KEDA's page of ScaledObject (keda.sh/v1alpha1): the fields that we write and their neighbours. A field that is not here is a fault, so
one that is used for the first time is looked up there and added.

The resource definitions themselves are held against the objects as well where KVW_CRDS names folders with them
(prometheus-operator's example/prometheus-operator-crd, cert-manager's deploy/crds; with a colon between two), and
tests/kubernetes.sh was run.
"""

import json
import os
import pathlib
import re
import subprocess

import yaml

VALIDATOR = pathlib.Path(__file__).parents[3] / "build-venv-kubernetes/bin/python"

# A schema: a type; a pattern of a whole text; a set of words; [schema] a list; {field: schema} a mapping, with `!`
# after what is required; Texts a mapping of texts; (schema, schema) either.
PERIOD = re.compile(r"0|(?=.)(\d+y)?(\d+w)?(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?")  # as Prometheus writes it
DURATION = re.compile(r"(\d+(\.\d+)?(ms|s|m|h))+")  # as Go writes it
LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Texts:
    pass


SELECTOR = {
    "matchLabels": Texts,
    "matchExpressions": [{"key!": str, "operator!": {"In", "NotIn", "Exists", "DoesNotExist"}, "values": [str]}],
}
KEY = {"key!": str, "name": str, "optional": bool}
KEY_OF = {"configMap": KEY, "secret": KEY}
TLS_VERSIONS = {"TLS10", "TLS11", "TLS12", "TLS13"}
SCRAPE_TLS = {
    "ca": KEY_OF, "cert": KEY_OF, "keySecret": KEY, "insecureSkipVerify": bool, "serverName": str,
    "minVersion": TLS_VERSIONS, "maxVersion": TLS_VERSIONS,
}  # fmt: skip
RELABELING = {
    "action": {"replace", "keep", "drop", "hashmod", "labelmap", "labeldrop", "labelkeep", "lowercase", "uppercase", "keepequal", "dropequal"},
    "modulus": int, "regex": str, "replacement": str, "separator": str, "sourceLabels": [LABEL], "targetLabel": str,
}  # fmt: skip
ENDPOINT = {
    "port": str, "targetPort": (str, int), "path": str, "scheme": {"http", "https"}, "params": dict, "interval": PERIOD,
    "scrapeTimeout": PERIOD, "tlsConfig": SCRAPE_TLS, "bearerTokenSecret": KEY, "honorLabels": bool, "honorTimestamps": bool,
    "followRedirects": bool, "enableHttp2": bool, "relabelings": [RELABELING], "metricRelabelings": [RELABELING],
}  # fmt: skip
NAMESPACES = {"any": bool, "matchNames": [str]}
MONITOR = {"selector!": SELECTOR, "namespaceSelector": NAMESPACES, "jobLabel": str, "podTargetLabels": [str], "sampleLimit": int}
RULE = {
    "alert": str, "record": str, "expr!": (str, int), "for": PERIOD, "keep_firing_for": PERIOD, "labels": Texts, "annotations": Texts,
}  # fmt: skip
GROUP = {"name!": str, "interval": PERIOD, "limit": int, "labels": Texts, "query_offset": PERIOD, "rules": [RULE]}
USAGES = {
    "signing", "digital signature", "content commitment", "key encipherment", "key agreement", "data encipherment", "cert sign",
    "crl sign", "encipher only", "decipher only", "any", "server auth", "client auth",
}  # fmt: skip
CERTIFICATE = {
    "secretName!": str, "issuerRef!": {"name!": str, "kind": str, "group": str}, "commonName": str, "dnsNames": [str],
    "ipAddresses": [str], "uris": [str], "duration": DURATION, "renewBefore": DURATION, "isCA": bool, "usages": [USAGES],
    "privateKey": {
        "algorithm": {"RSA", "ECDSA", "Ed25519"}, "encoding": {"PKCS1", "PKCS8"}, "rotationPolicy": {"Never", "Always"}, "size": int,
    },
    "secretTemplate": {"annotations": Texts, "labels": Texts}, "revisionHistoryLimit": int,
}  # fmt: skip
METADATA = {"name!": str, "namespace": str, "labels": Texts, "annotations": Texts}


def resource(group, kind, spec):
    return {"apiVersion!": {group}, "kind!": {kind}, "metadata!": METADATA, "spec!": spec}


OPERATOR, MANAGER, KEDA = "monitoring.coreos.com/v1", "cert-manager.io/v1", "keda.sh/v1alpha1"
# Of the trigger `prometheus`; all values of `metadata` are texts.
TRIGGER = {
    "type!": {"prometheus"}, "metricType": {"Value", "AverageValue"},
    "metadata!": {"serverAddress!": str, "query!": str, "threshold!": str},
}  # fmt: skip
SCALED = {
    "scaleTargetRef!": {"apiVersion": str, "kind": str, "name!": str}, "pollingInterval": int, "cooldownPeriod": int,
    "minReplicaCount": int, "maxReplicaCount": int, "advanced": {"horizontalPodAutoscalerConfig": {"behavior": dict}},
    "triggers!": [TRIGGER],
}  # fmt: skip
KINDS = {
    "ServiceMonitor": (OPERATOR, {**MONITOR, "endpoints!": [ENDPOINT], "targetLabels": [str]}),
    "PodMonitor": (OPERATOR, {**MONITOR, "podMetricsEndpoints": [{**ENDPOINT, "portNumber": int}]}),
    "PrometheusRule": (OPERATOR, {"groups": [GROUP]}),
    "Certificate": (MANAGER, CERTIFICATE),
    "ScaledObject": (KEDA, SCALED),
    "Issuer": (MANAGER, {"selfSigned": {"crlDistributionPoints": [str]}, "ca": {"secretName!": str}}),
}


def is_custom(document):
    return document["apiVersion"] in (OPERATOR, MANAGER, KEDA)


def mapping(schema, value, path):
    fields = {key.rstrip("!"): its for key, its in schema.items()}
    if not isinstance(value, dict):
        return [f"{path}: {value!r} is no mapping"]
    found = [f"{path}.{key}: is not known" for key in value if key not in fields]
    found += [f"{path}.{key[:-1]}: is missing" for key in schema if key.endswith("!") and key[:-1] not in value]
    return found + [wrong for key in value if key in fields for wrong in faults_of(fields[key], value[key], f"{path}.{key}")]


def faults_of(schema, value, path):
    if isinstance(schema, dict):
        return mapping(schema, value, path)
    if isinstance(schema, list) and isinstance(value, list):
        return [wrong for i, each in enumerate(value) for wrong in faults_of(schema[0], each, f"{path}[{i}]")]
    if isinstance(schema, tuple):
        good = any(not faults_of(each, value, path) for each in schema)
    elif isinstance(schema, set):
        good = isinstance(value, str) and value in schema
    elif isinstance(schema, re.Pattern):
        good = isinstance(value, str) and schema.fullmatch(value)
    elif schema is Texts:
        good = isinstance(value, dict) and all(isinstance(each, str) for pair in value.items() for each in pair)
    elif schema is int:
        good = isinstance(value, int) and not isinstance(value, bool)
    else:
        good = isinstance(schema, type) and isinstance(value, schema)
    return [] if good else [f"{path}: {value!r}"]


# Holds a list of documents against a mapping of kinds to OpenAPI schemas, in which no further field may be.
PROGRAM = """
import json, sys, jsonschema

def strict(schema):
    if isinstance(schema, dict):
        if "properties" in schema and "additionalProperties" not in schema:
            schema["additionalProperties"] = False
        for each in schema.values():
            strict(each)
    elif isinstance(schema, list):
        for each in schema:
            strict(each)

given = json.load(sys.stdin)
for schema in given["schemas"].values():
    schema["properties"].pop("metadata")
    strict({**schema, "properties": schema["properties"]["spec"]})
    strict(schema["properties"]["spec"])
for document in given["documents"]:
    schema = given["schemas"].get(document["kind"], False)
    for error in jsonschema.Draft7Validator(schema).iter_errors(document):
        print(document["kind"], document["metadata"]["name"], error.json_path, error.message)
"""


def definitions():
    """{kind: schema} of the resource definitions that KVW_CRDS leads to."""
    found = {}
    for folder in os.environ["KVW_CRDS"].split(":"):
        for path in pathlib.Path(folder).glob("*.yaml"):
            for crd in yaml.safe_load_all(path.read_text()):
                if crd and crd["kind"] == "CustomResourceDefinition":
                    (version,) = (each for each in crd["spec"]["versions"] if each["name"] == "v1") or [None]
                    found[crd["spec"]["names"]["kind"]] = version["schema"]["openAPIV3Schema"]
    return found


def faults(documents):
    """Of those that are custom resources: texts, none for good ones."""
    documents = [each for each in documents if is_custom(each)]
    found = []
    for each in documents:
        group, spec = KINDS.get(each["kind"], (None, {}))
        where = f"{each['kind']} {each['metadata']['name']}"
        found += faults_of(resource(group, each["kind"], spec), each, where)
    if os.environ.get("KVW_CRDS"):
        held = [each for each in documents if each["apiVersion"] != KEDA]
        given = json.dumps({"schemas": definitions(), "documents": held})
        done = subprocess.run([VALIDATOR, "-c", PROGRAM], input=given, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found += done.stdout.splitlines()
    return found
