/*
 * reference.c - writes config/REFERENCE.md and config/examples/full.yaml from keys.def.
 *
 *     reference page FILE MINIMAL     the page; MINIMAL is the example at its top
 *     reference example FILE          every key with its default
 *     reference --check ...           compares FILE instead: exit 1 where it differs
 *
 * A program of the build, not of the product. Both files are committed, so that they can be read
 * without building; the tests run --check, so that neither can differ from keys.def.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvway/route.h"
#include "config/own_keys.h"
#include "config/stack_flags.h"
#include "settings/reference.h"

static void write_workers(FILE *out)
{
	fprintf(out,
		"\n## workers\n\n"
		"The vLLM servers: a list of at most %d entries, no URL twice; it may be empty or "
		"missing where `discovery` finds workers. Each entry has these keys.\n\n",
		KVW_MAX_WORKERS);
	kvw_reference_keys(out, &kvw_worker_schema);
}

static void write_levels(FILE *out)
{
	fprintf(out,
		"\n## service_levels\n\n"
		"Promises for single models and classes: a list of at most %d entries. An entry names a "
		"model, a class or both\nand at least one duration; no pair of model and class stands twice. "
		"A duration that an entry leaves out is that\nof the next less specific one: model and class, "
		"then the model, then the class, then `service_level`. 0s: nothing is\npromised.\n\n",
		KVW_MAX_SERVICE_LEVELS);
	kvw_reference_keys(out, &kvw_level_schema);
}

static void write_rates(FILE *out)
{
	fprintf(out,
		"\n## rate_limits\n\n"
		"How much tenants and models may use: a list of at most %d entries, each with a `tenant` or a "
		"`model` and at least\none limit; none stands twice. Those of single keys stand in the "
		"[keys file](#keys-of-clients). A request must be within\nall that hold for it, else it is "
		"answered 429 with Retry-After. Tokens are taken by prediction when a request comes,\nand "
		"corrected by the answer's `usage` when it ends.\n\n"
		"```yaml\nrate_limits:\n  - {tenant: acme, requests_per_minute: 600, tokens_per_minute: 200000}\n"
		"  - {model: llama-70b, concurrent: 64}\n```\n\n",
		KVW_MAX_RATE_LIMITS);
	kvw_reference_keys(out, &kvw_rate_schema);
}

static void write_aliases(FILE *out)
{
	fprintf(out,
		"\n## models\n\n"
		"Other names for models, at most %d, of at most %d bytes:\n\n"
		"```yaml\nmodels:\n  gpt-4o: {to: llama-70b}\n```\n\n"
		"A client that asks for `gpt-4o` gets `llama-70b`: kvway writes that name into the body, and routing, "
		"metrics,\n`service_levels` and `rate_limits` go by it. The answer names `llama-70b`, as the worker says. "
		"`models` of a key is\ncompared with the name that the client uses. `to` may be another alias, but no loop; a "
		"model that no worker serves is\nno mistake. An alias goes before a model of the same name. It must stand in a "
		"body that kvway reads whole (JSON or a form,\nno larger than `routing.scan_limit`, on a path of "
		"inference), not in a query.\n",
		KVW_MAX_ALIASES, KVW_ALIAS_MOST);
}

static void write_groups(FILE *out)
{
	fprintf(out,
		"\n## model_groups\n\n"
		"Several groups of workers for one model, such as a new version of the engine that gets a tenth of the "
		"requests: a list\nof at most %d entries, one for each group. Groups of one model differ in their workers or "
		"in `to`.\n\n"
		"```yaml\nmodel_groups:\n  - {model: llama, group: stable, weight: 90, workers: [stable]}\n"
		"  - {model: llama, group: canary, weight: 10, workers: [canary], to: llama-next}\n"
		"workers:\n  - {url: \"http://10.0.0.1:8000\", group: stable}\n"
		"  - {url: \"http://10.0.0.2:8000\", group: canary}\n```\n\n"
		"A session stays in its group, in every replica of kvway, while the weights stay; another weight moves no "
		"more sessions\nthan it must. The strategy then chooses among the group's workers. `service_levels`, "
		"`rate_limits` and `models` of a key\ngo by `model`; `/v1/models` shows that name alone. `to` needs a body "
		"that kvway reads whole, as `models` does; other\nrequests go to groups without it.\n\n",
		KVW_MAX_MODEL_GROUPS);
	kvw_reference_keys(out, &kvw_group_schema);
}

static void write_pools(FILE *out)
{
	fprintf(out,
		"\n## discovery.kubernetes.pools\n\n"
		"Which pods are workers: a list of at most %d entries, each with a `selector` or a `service`. "
		"A pod that is listed\nby several pools belongs to the first.\n\n",
		KVW_MAX_POOLS);
	kvw_reference_keys(out, &kvw_pool_schema);
}

static void write_client_keys(FILE *out)
{
	fputs("\n## Keys of clients\n\n"
	      "The file that `auth.keys_file` names: `keys:` and a list of entries, at most 200,000; `keys: []` "
	      "lets no client in.\n`kvway key new NAME` makes a key and its entry, `kvway key check FILE` looks the "
	      "file over.\n\n"
	      "```yaml\nkeys:\n  - name: alice\n    sha256: HASH # what `kvway key new alice` prints\n"
	      "    models: [llama-*]\n```\n\n",
		out);
	kvw_reference_keys(out, &kvw_client_key_schema);
}

static void write_types(FILE *out)
{
	fputs("\n## Types\n\n"
	      "What a value means is decided by its key, never by how it looks: `off` is a word "
	      "and "
	      "`8001` may be\na name. Quotes are allowed around any value.\n\n"
	      "| Type | Written as |\n|---|---|\n"
	      "| address | `HOST:PORT`, `[IPV6]:PORT`; port 0 lets the kernel choose one |\n"
	      "| date | `2027-01-31` or `2027-01-31T18:00:00Z`, UTC |\n"
	      "| duration | a whole number and its unit: `250ms`, `2s`, `10m`, `1h` |\n"
	      "| list of names | `[one, two]`; names as HTTP fields and cookies may have |\n"
	      "| list of text | `[one, two]`, or one entry a line after `- ` |\n"
	      "| number | `0.25`, `8000`, `1e6` |\n"
	      "| one of | one of the words in the column Range |\n"
	      "| path | begins with `/` |\n"
	      "| secret | visible ASCII; no message ever prints it |\n"
	      "| SHA-256 | 64 hexadecimal digits |\n"
	      "| size | bytes, or a whole number with `KiB`, `MiB`, `GiB`, `TiB`: `64MiB` |\n"
	      "| strategy | a name from the table of strategies |\n"
	      "| text | any characters but control characters |\n"
	      "| truth value | `true`, `false` |\n"
	      "| URL | `http://HOST:PORT`, `http://HOST:PORT/PREFIX`, the same with `https`; "
	      "without a port: 80, 443 |\n"
	      "| whole number | decimal digits |\n",
		out);
}

static void write_rules(FILE *out)
{
	fprintf(out,
		"\n## Rules of the file\n\n"
		"- One YAML document in UTF-8, at most %u KiB, indented with spaces.\n"
		"- Each key once; an unknown key is a mistake, never ignored.\n"
		"- No anchors, aliases, tags or merge keys; nothing is taken from the "
		"environment.\n"
		"- `limits.low_water` is below `limits.high_water`; `listen` and `admin.listen` "
		"do not share\n  a port.\n"
		"- An `admin.listen` that other hosts reach has `admin.keys_file`, "
		"`admin.tls.client_ca` or `admin.open`.\n"
		"- `kvway check -c FILE` finds every mistake in one run and names line, column and "
		"key.\n",
		KVW_CONFIG_MAX_BYTES >> 10);
}

static void write_strategies(FILE *out)
{
	fputs("\n## Strategies\n\n| Name | How it chooses |\n|---|---|\n", out);
	for (size_t i = 0; kvw_strategies[i] != NULL; i++) {
		fprintf(out, "| `%s` | ", kvw_strategies[i]->name);
		kvw_reference_cell(out, kvw_strategies[i]->help);
		fputs(" |\n", out);
	}
}

static void write_routing_spec(FILE *out)
{
	fputs("\n## " KVW_ROUTING_SPEC "\n\n"
	      "The section of this name of an `InferenceEndpointConfig` (SageMaker HyperPod) may stand at "
	      "the top of a\nfile as it is, instead of `routing.strategy`:\n\n"
	      "```yaml\n" KVW_ROUTING_SPEC ":\n  enabled: true\n  routingStrategy: prefixaware\n```\n\n"
	      "| Member | What it does |\n|---|---|\n"
	      "| `enabled` | required: `true` sets `routing.strategy` to `routingStrategy`, `false` to "
	      "`roundrobin` |\n"
	      "| `routingStrategy` | a strategy, by default `prefixaware` |\n"
	      "| `autoScalingSpec` | refused: Kubernetes starts replicas of kvway, not kvway itself |\n\n"
	      "If `routing.strategy` is there too, both must say the same. `kvaware` and `session` are "
	      "configured by their\nown sections, `kvaware` and `routing.session`.\n",
		out);
}

/* Writes the keys that a flag sets, or that it sets none. */
static void write_use(FILE *out, const struct kvw_stack_flag *flag)
{
	const char *keys = flag->keys;

	if (flag->use == KVW_STACK_ONLY) {
		fprintf(out, "only `%s`", keys[0] != '\0' ? keys : "\"\"");
	} else if (flag->use == KVW_STACK_REFUSED) {
		fputs("refused", out);
	} else if (flag->use == KVW_STACK_NOTE) {
		fputs("no effect", out);
	} else if (keys[0] == '\0') {
		fputs("the same", out);
	}
	while (flag->use != KVW_STACK_ONLY && *keys != '\0') {
		size_t len = strcspn(keys, " ");

		fprintf(out, "%s`%.*s`", keys != flag->keys ? ", " : "", (int)len, keys);
		keys += len;
		keys += *keys == ' ';
	}
}

static void write_stack_flags(FILE *out)
{
	fputs("\n## Flags of vLLM production-stack's router\n\n"
	      "A command line of that router starts kvway, too:\n\n"
	      "```sh\nkvway --service-discovery static --static-backends "
	      "http://10.0.0.1:8000,http://10.0.0.2:8000 \\\n"
	      "      --static-models llama,llama --routing-logic session --session-key x-user-id\n```\n\n"
	      "`kvway render` followed by such flags writes the file that they amount to. kvway names flags "
	      "that have\nno effect when it starts; it refuses those whose effect their users would miss, "
	      "and says what to use\ninstead. The flags `--admin`, `--access-log`, `--listen`, `--worker` and "
	      "`--strategy` may stand among them.\nNothing is taken from the environment: what was "
	      "`VLLM_API_KEY` is `api_key` of each worker, in a file.\n\n"
	      "| Flag | Here | What to know |\n|---|---|---|\n",
		out);
	for (size_t i = 0; i < KVW_STACK_FLAG_COUNT; i++) {
		const struct kvw_stack_flag *flag = &kvw_stack_flags[i];
		bool expects = flag->use == KVW_STACK_ONLY || flag->use == KVW_STACK_REFUSED;

		fprintf(out, "| `%s%s%s` | ", flag->flag, flag->argument != NULL ? " " : "",
			flag->argument != NULL ? flag->argument : "");
		write_use(out, flag);
		fprintf(out, " | %s", expects ? "Expected: " : "");
		kvw_reference_cell(out, flag->text);
		fputs(" |\n", out);
	}
}

/* Copies the example file, without its comments. */
static bool write_minimal(FILE *out, const char *path)
{
	FILE *in = fopen(path, "r");
	char line[256];

	if (in == NULL) {
		perror(path);
		return false;
	}
	fputs("\n```yaml\n", out);
	while (fgets(line, sizeof(line), in) != NULL)
		if (line[0] != '#')
			fputs(line, out);
	fputs("```\n", out);
	fclose(in);
	return true;
}

static bool write_page(FILE *out, const struct kvw_own_keys *own, const char *minimal)
{
	fputs("# Configuration of kvway\n\n"
	      "<!-- Written by `ninja -C BUILD reference` from keys.def and the strategies' "
	      "tables. -->\n\n"
	      "The smallest useful file; everything else has a default:\n",
		out);
	if (!write_minimal(out, minimal))
		return false;
	fputs("\nRun it with `kvway -c FILE`, check it with `kvway check -c FILE`. The same "
	      "without "
	      "a file:\n\n"
	      "```sh\nkvway --listen 0.0.0.0:8080 --worker http://127.0.0.1:8001 --worker "
	      "http://127.0.0.1:8002\n```\n\n"
	      "`examples/full.yaml` has every key with its default, `examples/production.yaml` "
	      "shows a typical use,\n`examples/overload.yaml` what waits and what is refused under "
	      "overload.\nA dot in a key stands for a section: `routing.strategy` is "
	      "`strategy:` indented below `routing:`.\n"
	      "*Change by* says what a new value needs: a `restart` of the process, or a `reload`, by which the running\n"
	      "process takes it over: SIGHUP, `POST /reload` of the admin address, or `config.watch`.\n",
		out);
	write_strategies(out);
	write_workers(out);
	kvw_reference_sections(out, &own->schema);
	write_levels(out);
	write_rates(out);
	write_aliases(out);
	write_groups(out);
	write_pools(out);
	write_client_keys(out);
	write_types(out);
	write_rules(out);
	write_routing_spec(out);
	write_stack_flags(out);
	return true;
}

static void write_example(FILE *out, const struct kvw_own_keys *own)
{
	fputs("# Every key of kvway with its default. Written by `ninja -C BUILD reference`.\n"
	      "# A file needs only what differs; minimal.yaml is the better beginning.\n",
		out);
	kvw_reference_example(out, &own->schema);
	fputs("\n# What requests of single models and classes are promised instead of `service_level`.\n"
	      "service_levels: []\n"
	      "\n# How much tenants and models may use.\nrate_limits: []\n",
		out);
	fputs("\n# Other names for models, such as gpt-4o: {to: llama-70b}.\nmodels: {}\n", out);
	fputs("\n# Groups of workers of one model.\nmodel_groups: []\n", out);
	fputs("\n# The vLLM servers.\nworkers:\n  - url: http://127.0.0.1:8001\n", out);
	for (size_t k = 1; k < KVW_WORKER_KEY_COUNT; k++)
		kvw_reference_example_key(
			out, &kvw_worker_schema, &kvw_worker_keys[k], kvw_worker_keys[k].path, 2);
}

static bool same_as_file(const char *path, const char *text, size_t len)
{
	FILE *in = fopen(path, "r");
	char *content = malloc(len + 1);
	bool same = false;

	if (in != NULL && content != NULL)
		same = fread(content, 1, len + 1, in) == len && memcmp(content, text, len) == 0;
	if (!same)
		fprintf(stderr, "%s differs from keys.def: run `ninja -C BUILD reference`\n", path);
	free(content);
	if (in != NULL)
		fclose(in);
	return same;
}

static bool write_file(const char *path, const char *text, size_t len)
{
	FILE *out = fopen(path, "w");
	bool ok = out != NULL && fwrite(text, 1, len, out) == len;

	if (out != NULL && fclose(out) != 0)
		ok = false;
	if (!ok)
		perror(path);
	return ok;
}

int main(int argc, char **argv)
{
	bool check = argc > 1 && strcmp(argv[1], "--check") == 0;
	char **words = argv + 1 + check;
	int count = argc - 1 - check;
	bool page = count == 3 && strcmp(words[0], "page") == 0;
	char *text = NULL;
	size_t len = 0;
	struct kvw_own_keys own;
	bool ok = true;
	FILE *out;

	if (!page && !(count == 2 && strcmp(words[0], "example") == 0)) {
		fputs("usage: reference [--check] page FILE MINIMAL | example FILE\n", stderr);
		return 2;
	}
	kvw_own_keys_init(&own, kvw_strategies);
	out = open_memstream(&text, &len);
	if (out == NULL) {
		perror("reference");
		return 1;
	}
	if (page)
		ok = write_page(out, &own, words[2]);
	else
		write_example(out, &own);
	if (fclose(out) != 0)
		ok = false;
	if (ok)
		ok = check ? same_as_file(words[1], text, len) : write_file(words[1], text, len);
	free(text);
	return ok ? 0 : 1;
}
