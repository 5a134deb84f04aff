/*
 * mistakes_test.c - each way to write a wrong configuration, and what the user reads about it.
 *
 * Every row is one mistake: exactly one line must come, at this line and column, with this key,
 * holding these words.
 */
#include "helpers.h"
#include "tests/unit/suite.h"

struct mistake {
	const char *text;
	unsigned line, column;
	const char *key; /* NULL: syntax, no key */
	const char *says[3];
};

static const struct mistake mistakes[] = {
	/* Names */
	{"lisen: 0.0.0.0:80\n" TEST_WORKER, 1, 1, "lisen",
		{"unknown key", "did you mean `listen`?"}},
	{"limits:\n  bodi: 1MiB\n" TEST_WORKER, 2, 3, "limits.bodi",
		{"did you mean `limits.body`?"}},
	{"routing:\n  session:\n    ttll: 1h\n" TEST_WORKER, 3, 5, "routing.session.ttll",
		{"did you mean `routing.session.ttl`?"}},
	{"strategy: session\n" TEST_WORKER, 1, 1, "strategy", {"did you mean `routing.strategy`?"}},
	{"Listen: 0.0.0.0:80\n" TEST_WORKER, 1, 1, "Listen", {"did you mean `listen`?"}},
	{"limits:\n  body-memory: 2GiB\n" TEST_WORKER, 2, 3, "limits.body-memory",
		{"did you mean `limits.body_memory`?"}},
	{"worker:\n  - url: http://a:1\n" TEST_WORKER, 1, 1, "worker", {"did you mean `workers`?"}},
	{"qwertz: 1\n" TEST_WORKER, 1, 1, "qwertz", {"expected one of listen, loops", "workers"}},
	{"timeouts:\n  drain: 5m\n" TEST_WORKER, 2, 3, "timeouts.drain",
		{"a key of an earlier version", "expected `drain.timeout`"}},
	{"tls:\n  ocsp_files: [/a.der]\n" TEST_WORKER, 2, 3, "tls.ocsp_files",
		{"a key of an earlier version, which was removed"}},
	{"tls:\n  kernel: auto\n" TEST_WORKER, 2, 3, "tls.kernel",
		{"a key of an earlier version, which was removed"}},
	{"upstream: {tls: {kernel: off}}\n" TEST_WORKER, 1, 18, "upstream.tls.kernel",
		{"a key of an earlier version, which was removed"}},
	{"routing.strategy: session\n" TEST_WORKER, 1, 1, "routing.strategy", {"key with a dot"}},
	{"<<: {loops: 1}\n" TEST_WORKER, 1, 1, "<<", {"merge key"}},
	{"workers:\n  - url: http://a:1\n    modls: [m]\n", 3, 5, "workers[0].modls",
		{"unknown key", "did you mean `models`?"}},
	{"\"li\\0sten\": a:1\n" TEST_WORKER, 1, 1, "li", {"unknown key"}},

	{"expose:\n  paths: [/v1/models, v1]\n" TEST_WORKER, 2, 10, "expose.paths",
		{"found `v1`", "expected a path of at most 6 segments"}},
	{"expose:\n  paths: ['/a?b']\n" TEST_WORKER, 2, 10, "expose.paths", {"found `/a?b`"}},
	{"admin:\n  listen: 10.0.0.5:9090\n" TEST_WORKER, 2, 11, "admin.listen",
		{"found `10.0.0.5:9090`, which other hosts reach", "`127.0.0.1:9090`", "`admin.open`"}},
	{"admin:\n  listen: 127.example:9090\n" TEST_WORKER, 2, 11, "admin.listen", {"which other hosts reach"}},
	{"admin:\n  open: [/metrics, '/*']\n" TEST_WORKER, 2, 9, "admin.open",
		{"found `/*`, expected paths by name", "change workers"}},
	{"admin:\n  open: [metrics]\n" TEST_WORKER, 2, 9, "admin.open", {"found `metrics`", "expected a path"}},
	{"admin:\n  keys_file: a\nauth:\n  keys_file: a\n" TEST_WORKER, 2, 14, "admin.keys_file",
		{"found the file that `auth.keys_file` names"}},
	{"proxies:\n  trusted: [10.0.0.1/8]\n" TEST_WORKER, 2, 12, "proxies.trusted", {"found `10.0.0.1/8`"}},
	{"proxies:\n  protocol: accept\n" TEST_WORKER, 2, 13, "proxies.protocol", {"found no `proxies.trusted`"}},
	{"auth:\n  jwt:\n    jwks_url: https://a/b\n    issuer: a\n    audience: [b]\n    keep: 1m\n" TEST_WORKER, 6, 11,
		"auth.jwt.keep", {"found 60000 ms, expected no less than the 300000 ms of `auth.jwt.refresh`"}},
	{"auth:\n  jwt:\n    jwks_url: https://a/b\n    issuer: a\n    audience: [b]\n    refresh: 12h\n" TEST_WORKER, 6, 14,
		"auth.jwt.refresh", {"found 43200000 ms, expected no more than the 21600000 ms of `auth.jwt.keep`"}},
	{"auth:\n  keys_fil: x\n" TEST_WORKER, 2, 3, "auth.keys_fil", {"did you mean `auth.keys_file`?"}},
	{"inteligentRoutingSpec: {enabled: true}\n" TEST_WORKER, 1, 1, "inteligentRoutingSpec",
		{"unknown key", "did you mean `intelligentRoutingSpec`?"}},

	/* intelligentRoutingSpec */
	{"intelligentRoutingSpec:\n" TEST_WORKER, 1, 24, "intelligentRoutingSpec",
		{"found nothing", "`enabled: true` and `routingStrategy: NAME` below it, indented"}},
	{"intelligentRoutingSpec: {}\n" TEST_WORKER, 1, 25, "intelligentRoutingSpec",
		{"found an empty mapping", "`enabled: true`"}},
	{"intelligentRoutingSpec: session\n" TEST_WORKER, 1, 25, "intelligentRoutingSpec",
		{"found text", "`enabled: true`"}},
	{"intelligentRoutingSpec: [session]\n" TEST_WORKER, 1, 25, "intelligentRoutingSpec",
		{"found a list"}},
	{"intelligentRoutingSpec:\n  routingStrategy: session\n" TEST_WORKER, 2, 3,
		"intelligentRoutingSpec.enabled", {"found nothing, expected true or false"}},
	{"intelligentRoutingSpec: {enabled: yes}\n" TEST_WORKER, 1, 35,
		"intelligentRoutingSpec.enabled", {"found `yes`, expected true or false"}},
	{"intelligentRoutingSpec:\n  enabled: true\n  routingStrategy: prefix-aware\n" TEST_WORKER, 3, 20,
		"intelligentRoutingSpec.routingStrategy",
		{"found `prefix-aware`, expected one of prefixaware, session, roundrobin",
			"did you mean `prefixaware`?"}},
	{"intelligentRoutingSpec:\n  enabled: false\n  routingStrategy: fastest\n" TEST_WORKER, 3, 20,
		"intelligentRoutingSpec.routingStrategy", {"found `fastest`"}},
	{"intelligentRoutingSpec:\n  enabled: true\n  routingStrategie: session\n" TEST_WORKER, 3, 3,
		"intelligentRoutingSpec.routingStrategie",
		{"unknown key", "one of enabled, routingStrategy", "did you mean `routingStrategy`?"}},
	{"intelligentRoutingSpec: {enabled: true, \"enabled\\0\": false}\n" TEST_WORKER, 1, 41,
		"intelligentRoutingSpec.enabled", {"unknown key"}},
	{"intelligentRoutingSpec:\n  enabled: true\n  autoScalingSpec: {maxReplicaCount: 3}\n" TEST_WORKER,
		3, 3, "intelligentRoutingSpec.autoScalingSpec",
		{"found a setting for Kubernetes, expected none", "HorizontalPodAutoscaler"}},
	{"intelligentRoutingSpec:\n  enabled: true\n  enabled: false\n" TEST_WORKER, 3, 3,
		"intelligentRoutingSpec.enabled", {"second time", "first given in line 2"}},
	{"intelligentRoutingSpec: {enabled: true}\nintelligentRoutingSpec: {enabled: true}\n" TEST_WORKER, 2,
		1, "intelligentRoutingSpec", {"second time", "first given in line 1"}},
	{"intelligentRoutingSpec:\n  enabled: true\n  routingStrategy: session\n"
	 "routing:\n  strategy: roundrobin\n" TEST_WORKER,
		5, 13, "routing.strategy",
		{"found `roundrobin`, expected `session` as `intelligentRoutingSpec` in line 1 says"}},
	{"routing: {strategy: session}\nintelligentRoutingSpec: {enabled: true}\n" TEST_WORKER, 1, 21,
		"routing.strategy",
		{"found `session`, expected `prefixaware` as `intelligentRoutingSpec` in line 2 says"}},
	{"routing: {strategy: session}\n"
	 "intelligentRoutingSpec: {enabled: false, routingStrategy: session}\n" TEST_WORKER,
		1, 21, "routing.strategy", {"expected `roundrobin` as `intelligentRoutingSpec` in line 2"}},

	/* kvaware */
	{"kvaware: {lmcache: {hash: sha256_cobr}}\n" TEST_WORKER, 1, 27, "kvaware.lmcache.hash",
		{"found `sha256_cobr`", "LMCache itself takes any other name for builtin",
			"did you mean `sha256_cbor`?"}},
	{"kvaware: {lmcache: {hash: blake3}}\n" TEST_WORKER, 1, 27, "kvaware.lmcache.hash",
		{"found `blake3`", "one of builtin, sha256_cbor"}},
	{"kvaware: {lmcache: {hash_seed: random}}\n" TEST_WORKER, 1, 32, "kvaware.lmcache.hash_seed",
		{"found `random`", "only the workers themselves can compute"}},
	{"kvaware: {lmcache: {hash_seed: \"4294967296\"}}\n" TEST_WORKER, 1, 32,
		"kvaware.lmcache.hash_seed", {"0 to 4294967295"}},
	{"kvaware: {lmcache: {none_hash: abc}}\n" TEST_WORKER, 1, 32, "kvaware.lmcache.none_hash",
		{"found `abc`", "NONE_HASH"}},
	{"kvaware: {lmcache: {pull: \"tcp://0.0.0.0:9000\"}}\n" TEST_WORKER, 1, 27,
		"kvaware.lmcache.pull", {"HOST:PORT, without a scheme"}},
	{"kvaware: {lmcache: {pull: \"a:1\", reply: \"a:1\"}}\n" TEST_WORKER, 1, 41,
		"kvaware.lmcache.reply", {"an address of its own"}},
	{"kvaware: {lmcache: {advertise: \"a:1\"}}\n" TEST_WORKER, 1, 32,
		"kvaware.lmcache.advertise", {"`kvaware.lmcache.heartbeat` to be set too"}},
	{"kvaware: {events: {endpoint: \"{host}:5557\"}}\n" TEST_WORKER, 1, 30,
		"kvaware.events.endpoint", {"found `{host}:5557`", "`tcp://HOST:PORT`"}},
	{"kvaware: {events: {endpoint: \"tcp://{hots}:5557\"}}\n" TEST_WORKER, 1, 30,
		"kvaware.events.endpoint", {"`{host}` stands for the worker's"}},
	{"kvaware: {events: {endpoint: \"tcp://{host}:65530\", ranks: 8}}\n" TEST_WORKER, 1, 30,
		"kvaware.events.endpoint", {"room for the ports of all ranks"}},
	{"kvaware: {events: {replay: \"http://{host}:5558\"}}\n" TEST_WORKER, 1, 28,
		"kvaware.events.replay", {"found `http://{host}:5558`"}},
	{"kvaware: {events: {bind: \"tcp://{host}:5557\"}}\n" TEST_WORKER, 1, 26,
		"kvaware.events.bind", {"of this machine"}},
	{"workers:\n  - {url: \"http://a:1\", events_endpoint: \"a:5557\"}\n", 2, 5,
		"workers[0].events_endpoint", {"found `a:5557`"}},

	/* discovery */
	{"discovery: {dns: [\"vllm:8000\"]}\n" TEST_WORKER, 1, 18, "discovery.dns[0]",
		{"found `vllm:8000`", "`srv://_http._tcp.NAME`"}},
	{"discovery: {dns: [\"http://a:1\", \"srv://a.b.c\"]}\n" TEST_WORKER, 1, 18,
		"discovery.dns[1]", {"found `srv://a.b.c`"}},
	{"discovery: {dns: [\"srv://_a._b.c/v1\"]}\n" TEST_WORKER, 1, 18, "discovery.dns[0]",
		{"found `srv://_a._b.c/v1`"}},
	{"discovery: {dns: [\"http://a:1\", \"http://a:1\"]}\n" TEST_WORKER, 1, 18,
		"discovery.dns[1]", {"found `http://a:1` again"}},
	{"discovery: {dns_least: 2s, dns_most: 1s}\n" TEST_WORKER, 1, 24, "discovery.dns_least",
		{"at most `discovery.dns_most`"}},
	{"discovery: {dns_most: 500ms}\n" TEST_WORKER, 1, 23, "discovery.dns_most",
		{"less than `discovery.dns_least`"}},
	{"discovery: {file_interval: 1ms}\n" TEST_WORKER, 1, 28, "discovery.file_interval",
		{"100ms"}},

	/* admission */
	{"admission: {classes: [a, b, A]}\n" TEST_WORKER, 1, 22, "admission.classes[2]",
		{"found `A` again", "each class once"}},
	{"admission: {classes: [a b]}\n" TEST_WORKER, 1, 23, "admission.classes[0]",
		{"found `a b`", "a name of letters"}},
	{"admission: {classes: [a, b, c, d, e, f, g, h, i]}\n" TEST_WORKER, 1, 22,
		"admission.classes", {"found 9 entries, expected at most 8"}},
	{"admission: {default_class: a}\n" TEST_WORKER, 1, 28, "admission.default_class",
		{"found `a`, expected no class while `admission.classes` is empty"}},
	{"admission:\n  default_class: bach\n  classes: [chat, batch]\n" TEST_WORKER, 2, 18,
		"admission.default_class",
		{"found `bach`, expected one of `admission.classes`: chat, batch",
			"did you mean `batch`?"}},
	{"admission: {defaultclass: a}\n" TEST_WORKER, 1, 13, "admission.defaultclass",
		{"did you mean `admission.default_class`?"}},

	/* discovery.kubernetes.pools */
#define POOLS "discovery:\n  kubernetes:\n    pools: "
	{POOLS "[]\n", 3, 12, "discovery.kubernetes.pools", {"found an empty list", "{selector: app=vllm, port: 8000}"}},
	{POOLS "{selector: a}\n", 3, 12, "discovery.kubernetes.pools", {"found a mapping", "a list"}},
	{POOLS "[a]\n", 3, 13, "discovery.kubernetes.pools[0]", {"found text", "{selector: app=vllm, port: 8000}"}},
	{POOLS "[{port: 80}]\n", 3, 13, "discovery.kubernetes.pools[0]", {"neither `selector` nor `service`"}},
	{POOLS "[{selector: a, service: b}]\n", 3, 13, "discovery.kubernetes.pools[0]",
		{"both `selector` and `service`"}},
	{POOLS "[{selector: a}]\n", 3, 13, "discovery.kubernetes.pools[0].port",
		{"found nothing, expected a port's number"}},
	{POOLS "[{selector: a, port: 0}]\n", 3, 33, "discovery.kubernetes.pools[0].port", {"found `0`"}},
	{POOLS "[{selector: a, port: 65536}]\n", 3, 33, "discovery.kubernetes.pools[0].port", {"found `65536`"}},
	{POOLS "[{selector: a, port: HTTP}]\n", 3, 33, "discovery.kubernetes.pools[0].port", {"found `HTTP`"}},
	{POOLS "[{selector: 'a in b', port: 80}]\n", 3, 24, "discovery.kubernetes.pools[0].selector",
		{"found `a in b`, expected a label selector such as"}},
	{POOLS "[{service: A_b}]\n", 3, 23, "discovery.kubernetes.pools[0].service", {"the name of a Service"}},
	{POOLS "[{service: b, namespace: a/b}]\n", 3, 37, "discovery.kubernetes.pools[0].namespace",
		{"the name of a namespace"}},
	{POOLS "[{service: b, models_from: 'a b'}]\n", 3, 39, "discovery.kubernetes.pools[0].models_from",
		{"an annotation or a label"}},
	{POOLS "[{service: b, weight_from: a/b/c}]\n", 3, 39, "discovery.kubernetes.pools[0].weight_from",
		{"an annotation or a label"}},
	{POOLS "[{service: b, scale: pods/a}]\n", 3, 33, "discovery.kubernetes.pools[0].scale",
		{"found `pods/a`, expected `deployments/NAME` or `statefulsets/NAME`"}},
	{POOLS "[{service: b, scale: deployments/a/b}]\n", 3, 33, "discovery.kubernetes.pools[0].scale",
		{"`deployments/NAME`"}},
	{"discovery:\n  wake: {webhook: 'ftp://a/b'}\n" TEST_WORKER, 2, 19, "discovery.wake.webhook",
		{"found `ftp://a/b`, expected a URL"}},
	{POOLS "[{service: b, name: x}, {service: c, name: x}]\n", 3, 55,
		"discovery.kubernetes.pools[1].name", {"found `x`, expected a name of its own"}},
	{POOLS "[{service: b}, {service: b, namespace: c}]\n", 3, 27,
		"discovery.kubernetes.pools[1].name", {"found `b`, expected a name of its own"}},
	{POOLS "[{service: b, selektor: x}]\n", 3, 26, "discovery.kubernetes.pools[0].selektor",
		{"did you mean `selector`?"}},
	{"discovery:\n  kubernetes: {pool: [], pools: [{service: b}]}\n", 2, 16, "discovery.kubernetes.pool",
		{"did you mean `discovery.kubernetes.pools`?"}},
	{"discovery: {kubernetes: {namespace: A, pools: [{service: b}]}}\n", 1, 37,
		"discovery.kubernetes.namespace", {"found `A`, expected the name of a namespace"}},

	/* rate_limits */
	{"rate_limits: {tenant: a}\n" TEST_WORKER, 1, 14, "rate_limits",
		{"found a mapping, expected a list", "limits of single keys stand in `auth.keys_file`"}},
	{"rate_limits: []\nrate_limits: []\n" TEST_WORKER, 2, 1, "rate_limits", {"found a second time"}},
	{"rate_limits: [a]\n" TEST_WORKER, 1, 15, "rate_limits[0]", {"found text, expected an entry such as"}},
	{"rate_limits: [{tenant: a}]\n" TEST_WORKER, 1, 15, "rate_limits[0]", {"found no limit"}},
	{"rate_limits: [{tenant: a, requests_per_minute: 0}]\n" TEST_WORKER, 1, 15, "rate_limits[0]",
		{"found no limit"}},
	{"rate_limits:\n  - {tenant: a, model: m, concurrent: 1}\n" TEST_WORKER, 2, 5, "rate_limits[0]",
		{"found both, expected one of `tenant` and `model`"}},
	{"rate_limits: [{concurrent: 1}]\n" TEST_WORKER, 1, 15, "rate_limits[0]", {"found neither"}},
	{"rate_limits:\n  - {model: m, concurrent: 1}\n  - {tenant: m, concurrent: 1}\n"
	 "  - {model: m, tokens_per_day: 1}\n" TEST_WORKER,
		4, 5, "rate_limits[2]", {"found the same model again", "rate_limits[0] already"}},
	{"rate_limits:\n  - {model: b, concurrent: 1}\n  - {concurrent: 1, model: a}\nmodels: {c: {to: a}, a: {to: b}}\n"
	 TEST_WORKER,
		3, 28, "rate_limits[1].model", {"found an alias of `models`, expected the model that it stands for", "b"}},
	{"rate_limits: [{model: m, concurrent: 1, rpm: 1}]\n" TEST_WORKER, 1, 41, "rate_limits[0].rpm",
		{"found an unknown key, expected one of tenant, model, requests_per_minute"}},
	{"rate_limits:\n  - tenant: a\n    requests_per_minute: -1\n" TEST_WORKER, 3, 26,
		"rate_limits[0].requests_per_minute", {"found `-1`"}},
	{"rate_limits:\n  - {tenant: a, concurrent: 1, burst: 500ms}\n" TEST_WORKER, 2, 39,
		"rate_limits[0].burst", {"found `500ms`, expected a duration from 1s to 1h"}},

	{"rate_sharing: {redis: 'redis://u:secret@'}\n" TEST_WORKER, 1, 23, "rate_sharing.redis",
		{"found a value that is not printed here, expected"}},
	{"rate_sharing: {redis: 'http://a:1'}\n" TEST_WORKER, 1, 23, "rate_sharing.redis",
		{"found a value that is not printed here, expected"}},
	{"rate_sharing: {interval: 1m}\n" TEST_WORKER, 1, 26, "rate_sharing.interval",
		{"expected a duration from 10ms to 1s"}},

	{"tracing: {endpoint: 'http://u:secret@a:1'}\n" TEST_WORKER, 1, 21, "tracing.endpoint",
		{"found a value that is not printed here, expected a URL"}},

	/* replicas */
	{"replicas: {redis: 'redis://u:secret@'}\n" TEST_WORKER, 1, 19, "replicas.redis",
		{"found a value that is not printed here, expected"}},
	{"replicas: {interval: 900ms}\n" TEST_WORKER, 1, 22, "replicas.interval",
		{"found a life of 2000 ms with an interval of 900 ms, expected at least three intervals"}},
	{"replicas: {life: 100ms}\n" TEST_WORKER, 1, 18, "replicas.life",
		{"expected a duration from 500ms to 1m"}},
	{"replicas: {prefix: '}kvway'}\n" TEST_WORKER, 1, 20, "replicas.prefix",
		{"found `}kvway`, expected neither { nor }"}},
	{"replicas: {prefix: 'a{b'}\n" TEST_WORKER, 1, 20, "replicas.prefix",
		{"found `a{b`, expected neither { nor }"}},

	/* service_levels */
	{"service_levls: []\n" TEST_WORKER, 1, 1, "service_levls",
		{"unknown key", "did you mean `service_levels`?"}},
	{"service_levels:\n" TEST_WORKER, 1, 16, "service_levels",
		{"found nothing, expected a list with an entry such as", "`service_level`"}},
	{"service_levels: {ttft: 2s}\n" TEST_WORKER, 1, 17, "service_levels",
		{"found a mapping, expected a list", "what holds for all is `service_level`"}},
	{"service_levels: []\nservice_levels: []\n" TEST_WORKER, 2, 1, "service_levels",
		{"found a second time, expected once: first given in line 1"}},
	{"service_levels: [m]\n" TEST_WORKER, 1, 18, "service_levels[0]",
		{"found text, expected an entry such as `- {model: NAME, ttft: 2s}`"}},
	{"service_levels:\n  - model: m\n    ttfd: 1s\n    ttft: 1s\n" TEST_WORKER, 3, 5,
		"service_levels[0].ttfd",
		{"unknown key, expected one of model, class, ttft", "did you mean `ttft`?"}},
	{"service_levels:\n  - {model: m, model: n, ttft: 1s}\n" TEST_WORKER, 2, 16,
		"service_levels[0].model", {"second time"}},
	{"service_levels:\n  - model: m\n    tpot: 500us\n" TEST_WORKER, 3, 11,
		"service_levels[0].tpot", {"found `500us`, expected a duration such as"}},
	{"service_levels:\n  - model: m\n    tpot: 0.5ms\n" TEST_WORKER, 3, 11,
		"service_levels[0].tpot", {"found `0.5ms`, expected a duration such as"}},
	{"service_levels:\n  - model: m\n    ttft: 2h\n" TEST_WORKER, 3, 11,
		"service_levels[0].ttft", {"found `2h`, expected a duration from 0s to 1h"}},
	{"service_levels:\n  - model: m\n    ttft: inherited\n" TEST_WORKER, 3, 11,
		"service_levels[0].ttft", {"found `inherited`"}},
	{"service_levels:\n  - ttft: 1s\n" TEST_WORKER, 2, 5, "service_levels[0]",
		{"found neither model nor class", "what holds for all is `service_level`"}},
	{"service_levels:\n  - {model: \"\", ttft: 1s}\n" TEST_WORKER, 2, 5, "service_levels[0]",
		{"found an empty model or class"}},
	{"admission: {classes: [a]}\nservice_levels:\n  - {model: \"\", class: a, ttft: 1s}\n" TEST_WORKER,
		3, 13, "service_levels[0].model", {"found empty text", "leave the key out for all"}},
	{"service_levels:\n  - {model: m, ttft: 1s}\n  - model: n\n" TEST_WORKER, 3, 5,
		"service_levels[1]", {"found no duration, expected `ttft`"}},
	{"service_levels:\n  - {class: a, ttft: 1s}\n" TEST_WORKER, 2, 13,
		"service_levels[0].class", {"found `a`, expected no class while"}},
	{"service_levels:\n  - {class: chatt, ttft: 1s}\nadmission: {classes: [chat, batch]}\n" TEST_WORKER,
		2, 13, "service_levels[0].class",
		{"found `chatt`, expected one of `admission.classes`: chat, batch",
			"did you mean `chat`?"}},
	{"admission: {classes: [a]}\nservice_levels:\n  - {class: a, model: m, ttft: 1s}\n"
	 "  - {model: m, ttft: 1s}\n  - {model: m, class: A, tpot: 1s}\n" TEST_WORKER,
		5, 5, "service_levels[2]",
		{"found the same model and class again", "service_levels[0] already"}},

	/* Twice */
	{"loops: 1\nlisten: a:1\nloops: 1\n" TEST_WORKER, 3, 1, "loops",
		{"second time", "first given in line 1"}},
	{"limits: {body: 1MiB}\nloops: 2\nlimits: {body: 2MiB}\n" TEST_WORKER, 3, 1, "limits",
		{"second time", "first given in line 1"}},
	{"limits:\n  body: 1MiB\n  body: 1MiB\n" TEST_WORKER, 3, 3, "limits.body",
		{"second time", "first given in line 2"}},
	{TEST_WORKER "workers:\n  - url: http://a:1\n", 3, 1, "workers", {"second time", "line 1"}},
	{"workers:\n  - url: http://a:1\n    url: http://a:2\n", 3, 5, "workers[0].url",
		{"second time"}},
	{"workers:\n  - url: http://Host.example:80\n  - url: http://host.example/\n", 3, 10,
		"workers[1].url", {"`http://host.example:80` again", "workers[0]"}},

	/* Types and ranges */
	{"loops: many\n" TEST_WORKER, 1, 8, "loops",
		{"found `many`", "expected a whole number", "0 to 256"}},
	{"loops: 257\n" TEST_WORKER, 1, 8, "loops", {"found `257`", "from 0 to 256"}},
	{"loops: -1\n" TEST_WORKER, 1, 8, "loops", {"found `-1`", "from 0 to 256"}},
	{"loops: 1.5\n" TEST_WORKER, 1, 8, "loops", {"found `1.5`", "whole number"}},
	{"loops: 0x10\n" TEST_WORKER, 1, 8, "loops", {"found `0x10`", "whole number"}},
	{"loops: 99999999999999999999\n" TEST_WORKER, 1, 8, "loops", {"whole number", "0 to 256"}},
	{"loops: [1]\n" TEST_WORKER, 1, 8, "loops", {"found a list", "whole number"}},
	{"loops: {a: 1}\n" TEST_WORKER, 1, 8, "loops", {"found a mapping", "whole number"}},
	{"loops:\n" TEST_WORKER, 1, 7, "loops", {"found nothing", "whole number"}},
	{"loops: ~\n" TEST_WORKER, 1, 8, "loops", {"found nothing"}},
	{"loops: \"\"\n" TEST_WORKER, 1, 8, "loops", {"found empty text"}},
	{"expose:\n  lora: yes\n" TEST_WORKER, 2, 9, "expose.lora",
		{"found `yes`", "true or false", "did you mean `true`?"}},
	{"expose:\n  lora: perhaps\n" TEST_WORKER, 2, 9, "expose.lora",
		{"expected true or false"}},
	{"http:\n  decision_headers: true\n" TEST_WORKER, 2, 21, "http.decision_headers",
		{"found `true`", "on_request", "always"}},
	{"routing:\n  omega: nan\n" TEST_WORKER, 2, 10, "routing.omega", {"number", "0 to 10"}},
	{"workers:\n  - {url: http://a:1, weight: 0}\n", 2, 31, "workers[0].weight",
		{"found `0`", "0.01 to 1"}},
	{"routing:\n  omega: 0x1p1\n" TEST_WORKER, 2, 10, "routing.omega", {"number"}},
	{"routing:\n  omega: 1e1000\n" TEST_WORKER, 2, 10, "routing.omega", {"number"}},
	{"routing:\n  omega: 10.01\n" TEST_WORKER, 2, 10, "routing.omega",
		{"a number from 0 to 10"}},
	{"limits:\n  body: 64MB\n" TEST_WORKER, 2, 9, "limits.body",
		{"found `64MB`", "KiB, MiB, GiB", "did you mean `64MiB`?"}},
	{"limits:\n  body: 64 MiB\n" TEST_WORKER, 2, 9, "limits.body", {"did you mean `64MiB`?"}},
	{"limits:\n  body: 64parsec\n" TEST_WORKER, 2, 9, "limits.body", {"found `64parsec`"}},
	{"limits:\n  body: 1.5GiB\n" TEST_WORKER, 2, 9, "limits.body", {"found `1.5GiB`"}},
	{"limits:\n  body: 99999999TiB\n" TEST_WORKER, 2, 9, "limits.body", {"to 1TiB"}},
	{"limits:\n  body: 1023\n" TEST_WORKER, 2, 9, "limits.body", {"a size from 1KiB to 1TiB"}},
	{"limits:\n  body: 2TiB\n" TEST_WORKER, 2, 9, "limits.body", {"a size from 1KiB to 1TiB"}},
	{"timeouts:\n  connect: 5\n" TEST_WORKER, 2, 12, "timeouts.connect",
		{"found `5`", "250ms, 2s, 10m or 1h", "did you mean `5s`?"}},
	{"timeouts:\n  connect: 5sec\n" TEST_WORKER, 2, 12, "timeouts.connect",
		{"did you mean `5s`?"}},
	{"timeouts:\n  connect: 1ms\n" TEST_WORKER, 2, 12, "timeouts.connect",
		{"a duration from 10ms to 10m"}},
	{"timeouts:\n  connect: 9223372036854775807h\n" TEST_WORKER, 2, 12, "timeouts.connect",
		{"duration"}},
	{"timeouts: soon\n" TEST_WORKER, 1, 11, "timeouts", {"found text", "such as `connect:`"}},
	{"timeouts: [1s]\n" TEST_WORKER, 1, 11, "timeouts", {"found a list"}},

	/* Words */
	{"http:\n  half_close: abrot\n" TEST_WORKER, 2, 15, "http.half_close",
		{"one of abort, serve", "did you mean `abort`?"}},
	{"http:\n  forwarded: all\n" TEST_WORKER, 2, 14, "http.forwarded",
		{"one of both, forwarded, x-forwarded-for, off"}},
	{"log:\n  level: loud\n" TEST_WORKER, 2, 10, "log.level",
		{"one of debug, info, warn, error"}},
	{"log:\n  level:\n" TEST_WORKER, 2, 9, "log.level", {"found nothing", "one of debug"}},
	{"routing:\n  strategy: round-robin\n" TEST_WORKER, 2, 13, "routing.strategy",
		{"found `round-robin`", "did you mean `roundrobin`?"}},
	{"routing:\n  strategy: fastest\n" TEST_WORKER, 2, 13, "routing.strategy",
		{"found `fastest`", "one of prefixaware, session, roundrobin"}},

	/* Addresses */
	{"listen: 8080\n" TEST_WORKER, 1, 9, "listen",
		{"HOST:PORT", "did you mean `0.0.0.0:8080`?"}},
	{"listen: \":8080\"\n" TEST_WORKER, 1, 9, "listen", {"did you mean `0.0.0.0:8080`?"}},
	{"listen: \"*:8080\"\n" TEST_WORKER, 1, 9, "listen", {"did you mean `0.0.0.0:8080`?"}},
	{"listen: 0.0.0.0:65536\n" TEST_WORKER, 1, 9, "listen", {"a port from 1 to 65535"}},
	{"listen: 0.0.0.0:http\n" TEST_WORKER, 1, 9, "listen", {"a port from 1 to 65535"}},
	{"listen: 300.0.0.1:80\n" TEST_WORKER, 1, 9, "listen", {"HOST:PORT"}},
	{"listen: \"::1:8080\"\n" TEST_WORKER, 1, 9, "listen", {"in brackets such as [::1]:8080"}},
	{"listen: \"[::1]\"\n" TEST_WORKER, 1, 9, "listen", {"HOST:PORT"}},
	{"listen: \"[fe80::zz]:1\"\n" TEST_WORKER, 1, 9, "listen", {"HOST:PORT"}},
	{"listen: -a.b:1\n" TEST_WORKER, 1, 9, "listen", {"HOST:PORT"}},
	{"listen:\n" TEST_WORKER, 1, 8, "listen", {"found nothing", "HOST:PORT"}},

	/* Lists */
	{"routing:\n  session:\n    headers: x-a\n" TEST_WORKER, 3, 14, "routing.session.headers",
		{"found `x-a`", "a list", "did you mean `[x-a]`?"}},
	{"routing:\n  session:\n    headers: [a, b c]\n" TEST_WORKER, 3, 18,
		"routing.session.headers[1]", {"found `b c`", "letters, digits"}},
	{"routing:\n  session:\n    cookies:\n" TEST_WORKER, 3, 13, "routing.session.cookies",
		{"found nothing", "a list"}},
	{"routing:\n  session:\n    body_fields: [a, \"\"]\n" TEST_WORKER, 3, 22,
		"routing.session.body_fields[1]", {"found empty text", "expected text"}},
	{"routing:\n  session:\n    body_fields: [a, [b]]\n" TEST_WORKER, 3, 22,
		"routing.session.body_fields[1]", {"found a list"}},
	{"routing:\n  session:\n    body_fields: [a, b, c, d, e, f, g, h, i]\n" TEST_WORKER, 3, 18,
		"routing.session.body_fields", {"found 9 entries", "at most 8"}},

	/* Text */
	{"health:\n  path: health\n" TEST_WORKER, 2, 9, "health.path",
		{"begins with `/`", "did you mean `/health`?"}},
	{"health:\n  path: \"/a b\"\n" TEST_WORKER, 2, 9, "health.path", {"begins with `/`"}},
	{"log:\n  access: \"a\\nb\"\n" TEST_WORKER, 2, 11, "log.access",
		{"found `a\\x0Ab`", "without control characters"}},

	/* Workers */
	{"listen: 0.0.0.0:8080\n", 1, 1, "workers", {"found nothing", "- url: http://HOST:PORT"}},
	{"", 1, 1, "workers", {"found nothing"}},
	{"# only a comment\n", 1, 1, "workers", {"found nothing"}},
	{"loops: 1\nworkers:\n", 2, 9, "workers", {"found nothing", "a list"}},
	{"workers: []\n", 1, 10, "workers", {"found an empty list", "`discovery.file`, `discovery.dns` or `discovery.kubernetes`"}},
	{"discovery: {file: \"\", dns: []}\n", 1, 1, "workers", {"found nothing", "`discovery.file`"}},
	{"workers: http://a:1\n", 1, 10, "workers", {"found text", "a list"}},
	{"workers:\n  url: http://a:1\n", 2, 3, "workers", {"found a mapping", "a list"}},
	{"workers:\n  - http://a:1\n", 2, 5, "workers[0]", {"found text", "- url: http"}},
	{"workers:\n  -\n", 2, 4, "workers[0]", {"found nothing", "- url: http"}},
	{"workers:\n  - models: [m]\n", 2, 5, "workers[0].url", {"found nothing", "URL"}},
	{"workers:\n  - url:\n", 2, 9, "workers[0].url", {"found nothing", "http://HOST:PORT"}},
	{"workers:\n  - url: 127.0.0.1:8001\n", 2, 10, "workers[0].url",
		{"did you mean `http://127.0.0.1:8001`?"}},
	{"workers:\n  - url: https://a:0\n", 2, 10, "workers[0].url",
		{"found `https://a:0`", "a port from 1 to 65535"}},
	{"tls:\n  certificate: /absent/crt\n" TEST_WORKER, 2, 16, "tls.certificate",
		{"found no `tls.key`"}},
	{"tls:\n  key: /absent/key\n" TEST_WORKER, 2, 8, "tls.key",
		{"found no `tls.certificate`"}},
	{"tls:\n  client_ca: /etc/passwd\n" TEST_WORKER, 2, 14, "tls.client_ca",
		{"found no `tls.certificate`"}},
	{"tls:\n  min_version: 1.1\n" TEST_WORKER, 2, 16, "tls.min_version",
		{"found `1.1`", "one of 1.2, 1.3"}},
	{"upstream:\n  tls:\n    ca_file: /\n" TEST_WORKER, 3, 14, "upstream.tls.ca_file",
		{"found `/` (not a regular file)", "authorities in PEM form"}},
	{"upstream:\n  tls:\n    ca_file: /etc/passwd\n" TEST_WORKER, 3, 14,
		"upstream.tls.ca_file", {"found `/etc/passwd` (", "authorities in PEM form"}},
	{"workers:\n  - url: ftp://a:1\n", 2, 10, "workers[0].url", {"the scheme http"}},
	{"workers:\n  - url: http://a:99999\n", 2, 10, "workers[0].url",
		{"a port from 1 to 65535"}},
	{"workers:\n  - url: http://a:0\n", 2, 10, "workers[0].url", {"a port from 1 to 65535"}},
	{"workers:\n  - url: http://\n", 2, 10, "workers[0].url", {"a host"}},
	{"workers:\n  - url: http://a..b:1\n", 2, 10, "workers[0].url",
		{"a host name or IP address"}},
	{"workers:\n  - url: http://::1:80\n", 2, 10, "workers[0].url", {"in brackets"}},
	{"workers:\n  - url: http://a:1/v1\n", 2, 10, "workers[0].url",
		{"without /v1", "did you mean `http://a:1`?"}},
	{"workers:\n  - url: http://a:1/x/../y\n", 2, 10, "workers[0].url", {"a plain path"}},
	{"workers:\n  - url: http://a:1/x?y=1\n", 2, 10, "workers[0].url", {"without '?' and '#'"}},
	{"workers:\n  - url: http://a:1\n    models: m\n", 3, 13, "workers[0].models",
		{"a list", "did you mean `[m]`?"}},

	/* YAML that we refuse, or that is none */
	{"loops: &x 1\n" TEST_WORKER, 1, 8, "loops", {"the anchor `x`", "not supported"}},
	{"timeouts:\n  head: *x\n" TEST_WORKER, 2, 9, "timeouts.head", {"the alias `x`"}},
	{"loops: !!int 1\n" TEST_WORKER, 1, 8, "loops", {"the tag", "not supported"}},
	{"[a]: b\n" TEST_WORKER, 1, 1, NULL, {"found a list as a key"}},
	{"just text\n", 1, 1, NULL, {"found text", "`listen:`"}},
	{"- a\n- b\n", 1, 1, NULL, {"found a list", "`workers:`"}},
	{TEST_WORKER "---\nloops: 1\n", 3, 1, NULL, {"a second document"}},
	{"limits:\n\tbody: 1MiB\n" TEST_WORKER, 2, 1, NULL, {"found a tab", "spaces"}},
	{"loops: [1\nlisten: a:1\n", 2, 7, NULL, {"not valid YAML", "begun at line 1"}},
	{"loops: a: b\n", 1, 9, NULL, {"not valid YAML"}},
	{"loops: \"1\n", 2, 1, NULL, {"not valid YAML", "quoted scalar"}},
	{"loops: 1\n  listen: a:1\n", 2, 9, NULL, {"not valid YAML"}},
	{"# \xC3\xA4\xFF\n" TEST_WORKER, 1, 4, NULL, {"0xFF", "UTF-8"}},
	{TEST_WORKER "# \xC3", 3, 3, NULL, {"the byte 0xC3 (incomplete"}},
	{"# \xED\xA0\x80\n" TEST_WORKER, 1, 3, NULL, {"the byte 0xED (invalid Unicode"}},
	{"loops: 1\n# \x01\n", 2, 3, NULL, {"control character 0x01"}},
	{"loops: 1 # \xED\xA0\x80\n", 1, 12, NULL, {"UTF-8"}},
	{"a: [[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]\n", 1, 19,
		"a[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]", {"16 levels of nesting"}},

	/* Rules between keys */
	{"limits:\n  low_water: 256KiB\n" TEST_WORKER, 2, 14, "limits.low_water",
		{"less than `limits.high_water`", "262144"}},
	{"limits:\n  high_water: 64KiB\n" TEST_WORKER, 2, 15, "limits.high_water",
		{"more than `limits.low_water`", "65536"}},
	{"admin:\n  listen: 127.0.0.1:8080\n" TEST_WORKER, 2, 11, "admin.listen",
		{"a port that differs from `listen`", "0.0.0.0:8080"}},
	{"listen: \"[::]:9090\"\n" TEST_WORKER, 1, 9, "listen",
		{"a port that differs from `admin.listen`"}},
};

#define MISTAKE_COUNT (sizeof(mistakes) / sizeof(mistakes[0]))

START_TEST(test_mistake)
{
	const struct mistake *m = &mistakes[_i];
	struct loaded loaded = load_text(m->text);
	char begin[128];

	snprintf(begin, sizeof(begin), "t.yaml:%u:%u: %s%s", m->line, m->column,
		m->key != NULL ? m->key : "", m->key != NULL ? ": " : "");
	ck_assert_msg(loaded.err == KVW_EINVAL, "accepted: %s", m->text);
	ck_assert_ptr_null(loaded.config);
	ck_assert_msg(strncmp(loaded.errors, begin, strlen(begin)) == 0, "%s\nwanted: %s",
		loaded.errors, begin);
	for (size_t i = 0; i < 3 && m->says[i] != NULL; i++)
		ck_assert_msg(strstr(loaded.errors + strlen(begin), m->says[i]) != NULL,
			"%s\nwanted: %s", loaded.errors, m->says[i]);
	ck_assert_msg(
		loaded.lines == 1, "one mistake, %zu lines:\n%s", loaded.lines, loaded.errors);
	loaded_release(&loaded);
}
END_TEST

START_TEST(test_all_in_one_run)
{
	struct loaded loaded = load_text("lisen: a:1\n"
					 "loops: many\n"
					 "timeouts:\n"
					 "  connect: 5\n"
					 "routing:\n"
					 "  strategy: fastest\n"
					 "limits:\n"
					 "  low_water: 1MiB\n"
					 "workers:\n"
					 "  - url: httpx://a:1\n"
					 "  - models: 3\n");
	static const char *const begins[] = {"t.yaml:1:1: lisen: ", "t.yaml:2:8: loops: ",
		"t.yaml:4:12: timeouts.connect: ", "t.yaml:6:13: routing.strategy: ",
		"t.yaml:10:10: workers[0].url: ", "t.yaml:11:13: workers[1].models: ",
		"t.yaml:11:5: workers[1].url: ", "t.yaml:8:14: limits.low_water: "};
	const char *line = loaded.errors;

	ck_assert_int_eq(loaded.err, KVW_EINVAL);
	for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
		ck_assert_msg(line != NULL && strncmp(line, begins[i], strlen(begins[i])) == 0,
			"%s\nwanted: %s", line, begins[i]);
		line = strchr(line, '\n');
		if (line != NULL)
			line++;
	}
	ck_assert_uint_eq(loaded.lines, sizeof(begins) / sizeof(begins[0]));
	loaded_release(&loaded);
}
END_TEST

/* Both files of a pair are looked at, whatever is wrong with the first. */
START_TEST(test_certificate_files)
{
	struct loaded loaded = load_text("tls:\n"
					 "  certificate: /absent/crt\n"
					 "  key: /etc/passwd\n"
					 "  client_ca: /dev/zero\n" TEST_WORKER);

	ck_assert_int_eq(loaded.err, KVW_EINVAL);
	ck_assert_uint_eq(loaded.lines, 3);
	ck_assert_ptr_nonnull(strstr(loaded.errors,
		"t.yaml:2:16: tls.certificate: found `/absent/crt` (No such file or directory), "
		"expected a certificate and its chain in PEM form\n"));
	ck_assert_ptr_nonnull(
		strstr(loaded.errors, "t.yaml:3:8: tls.key: found `/etc/passwd` ("));
	ck_assert_ptr_nonnull(strstr(
		loaded.errors, "expected a private key in PEM form, without a passphrase\n"));
	ck_assert_ptr_nonnull(strstr(loaded.errors,
		"t.yaml:4:14: tls.client_ca: found `/dev/zero` (not a regular file), expected "
		"certificates of authorities in PEM form\n"));
	loaded_release(&loaded);
}
END_TEST

START_TEST(test_secrets_stay_secret)
{
	struct loaded loaded = load_text("workers:\n"
					 "  - url: http://me:hunter2@a:1\n"
					 "    api_key: \"hunter2 and more\"\n"
					 "  - url: https://me:hunter2@a:1\n"
					 "  - url: me:hunter2@a:1\n");

	ck_assert_int_eq(loaded.err, KVW_EINVAL);
	ck_assert_uint_eq(loaded.lines, 4);
	ck_assert_ptr_null(strstr(loaded.errors, "hunter2"));
	ck_assert_ptr_nonnull(strstr(loaded.errors, "workers[0].url: found a URL with a user"));
	ck_assert_ptr_nonnull(strstr(loaded.errors, "workers[0].api_key: found a value"));
	loaded_release(&loaded);
}
END_TEST

START_TEST(test_terminal_is_safe)
{
	struct loaded loaded =
		load_text("\"\\e[31mred\": 1\nloops: \"\\e]0;x\\a\\u009b\"\n" TEST_WORKER);

	ck_assert_int_eq(loaded.err, KVW_EINVAL);
	for (const char *c = loaded.errors; *c != '\0'; c++)
		ck_assert_msg(*c == '\n' || (unsigned char)*c >= 0x20, "%s", loaded.errors);
	ck_assert_ptr_null(strstr(loaded.errors, "\xC2\x9B"));
	ck_assert_ptr_nonnull(strstr(loaded.errors, "\\x1B[31mred: "));
	loaded_release(&loaded);
}
END_TEST

/* Many lines of `text`. */
static char *repeat(const char *head, const char *line, size_t count)
{
	size_t size = strlen(head) + count * (strlen(line) + 8) + 1;
	char *text = malloc(size);
	size_t used;

	ck_assert_ptr_nonnull(text);
	used = (size_t)snprintf(text, size, "%s", head);
	for (size_t i = 0; i < count; i++)
		used += (size_t)snprintf(text + used, size - used, line, i);
	return text;
}

START_TEST(test_too_many_workers)
{
	char *text = repeat("workers:\n", "  - url: http://h:%zu\n", 1026);
	struct loaded loaded;

	memcpy(strstr(text, "http://h:0\n"), "http://g:7\n", 11);
	loaded = load_text(text);
	ck_assert_int_eq(loaded.err, KVW_EINVAL);
	ck_assert_str_eq(loaded.errors,
		"t.yaml:1026:5: workers: found 1026 workers, expected at most 1024\n");
	loaded_release(&loaded);
	*strstr(text, "  - url: http://h:1024\n") = '\0';
	loaded = load_text(text);
	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	ck_assert_uint_eq(loaded.config->worker_count, 1024);
	loaded_release(&loaded);
	free(text);
}
END_TEST

START_TEST(test_lines_are_bounded)
{
	char *text = repeat("", "nonsense%zu: 1\n", 5000);
	struct loaded loaded = load_text(text);

	ck_assert_int_eq(loaded.err, KVW_EINVAL);
	ck_assert_uint_eq(loaded.lines, 101);
	ck_assert_ptr_nonnull(strstr(loaded.errors, "t.yaml: 4901 more mistakes\n"));
	loaded_release(&loaded);
	free(text);
}
END_TEST

START_TEST(test_nodes_are_bounded)
{
	char *text = repeat("a:\n", "- %zu\n", 200001);
	struct loaded loaded = load_text(text);

	ck_assert_int_eq(loaded.err, KVW_EINVAL);
	ck_assert_ptr_nonnull(strstr(loaded.errors, "found more than 200000 keys and values"));
	loaded_release(&loaded);
	free(text);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("mistakes");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_mistake, 0, (int)MISTAKE_COUNT);
	tcase_add_test(tc, test_all_in_one_run);
	tcase_add_test(tc, test_certificate_files);
	tcase_add_test(tc, test_secrets_stay_secret);
	tcase_add_test(tc, test_terminal_is_safe);
	tcase_add_test(tc, test_too_many_workers);
	tcase_add_test(tc, test_lines_are_bounded);
	tcase_add_test(tc, test_nodes_are_bounded);
	return run_tcase("config mistakes", tc);
}
