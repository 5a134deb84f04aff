/*
 * options.c - parses the command line of `kvway render -f`.
 */
#include "render/options.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "render/manifest.h"
#include "settings/suggest.h"
#include "settings/types.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

enum option_id {
	OPTION_FILE = 'f',
	OPTION_OUTPUT = 'o',
	OPTION_NAMESPACE = 'n',
	OPTION_HELP = 'h',
	OPTION_IMAGE = 256,
	OPTION_KVWAY_IMAGE,
	OPTION_KVTIERD_IMAGE,
	OPTION_REDIS_IMAGE,
	OPTION_SOURCE,
	OPTION_DOMAIN,
	OPTION_CACHE,
	OPTION_LMCACHE,
	OPTION_STRICT,
	OPTION_REPLICAS,
	OPTION_GPUS,
	OPTION_L1,
	OPTION_L2,
	OPTION_NVME_PATH,
	OPTION_NVME,
	OPTION_ONLY,
	OPTION_FIELDS
};

static const struct option flags[] = {
	{"file", required_argument, NULL, OPTION_FILE},
	{"output", required_argument, NULL, OPTION_OUTPUT},
	{"namespace", required_argument, NULL, OPTION_NAMESPACE},
	{"image", required_argument, NULL, OPTION_IMAGE},
	{"kvway-image", required_argument, NULL, OPTION_KVWAY_IMAGE},
	{"kvtierd-image", required_argument, NULL, OPTION_KVTIERD_IMAGE},
	{"kvway-replicas", required_argument, NULL, OPTION_REPLICAS},
	{"redis-image", required_argument, NULL, OPTION_REDIS_IMAGE},
	{"model-source", required_argument, NULL, OPTION_SOURCE},
	{"gpus", required_argument, NULL, OPTION_GPUS},
	{"cluster-domain", required_argument, NULL, OPTION_DOMAIN},
	{"cache", required_argument, NULL, OPTION_CACHE},
	{"lmcache", required_argument, NULL, OPTION_LMCACHE},
	{"l1-size", required_argument, NULL, OPTION_L1},
	{"l2-size", required_argument, NULL, OPTION_L2},
	{"nvme-path", required_argument, NULL, OPTION_NVME_PATH},
	{"nvme-size", required_argument, NULL, OPTION_NVME},
	{"only", required_argument, NULL, OPTION_ONLY},
	{"strict", no_argument, NULL, OPTION_STRICT},
	{"fields", no_argument, NULL, OPTION_FIELDS},
	{"help", no_argument, NULL, OPTION_HELP},
	{NULL, 0, NULL, 0},
};

static const struct part_name {
	const char *name;
	enum kvw_render_part part;
} parts[] = {
	{"kvway-config", KVW_PART_CONFIG},
	{"workers", KVW_PART_WORKERS},
	{"router", KVW_PART_ROUTER},
	{"cache", KVW_PART_CACHE},
	{"monitoring", KVW_PART_MONITORING},
};

#define PART_COUNT (sizeof(parts) / sizeof(parts[0]))

/* State of the parser. */
struct reader {
	struct kvw_render_options *options;
	FILE *out, *err;
	uint32_t given; /* flags that were given, as bits */
	bool helped, bad;
};

static void print_help(FILE *out)
{
	fputs("kvway render -f turns an InferenceEndpointConfig or a JumpStartModel of SageMaker "
	      "HyperPod into\n"
	      "Kubernetes objects: vLLM workers, their caches, kvway in front of them.\n"
	      "\n"
	      "Usage:\n"
	      "  kvway render -f FILE | kubectl apply -f -\n"
	      "  kvway render -f FILE --only kvway-config       the router's configuration alone\n"
	      "  kvway render -c FILE, kvway render --worker URL ...\n"
	      "                                                 "
	      "a configuration of kvway as a file\n"
	      "\n"
	      "  -f, --file FILE          the manifest; - for standard input\n"
	      "  -o, --output FILE        where to (default -, standard output)\n"
	      "  -n, --namespace NAME     instead of the manifest's\n"
	      "      --image IMAGE        "
	      "of the workers, instead of the manifest's; a JumpStartModel names none\n"
	      "      --model-source URL   "
	      "of a JumpStartModel, which does not say it: s3://BUCKET/FOLDER?region=NAME,\n"
	      "                           hf://ORG/MODEL[@COMMIT] or pvc://CLAIM[/FOLDER]\n"
	      "      --gpus N             "
	      "of a JumpStartModel's worker, where kvway does not know its instance type\n"
	      "      --kvway-image IMAGE  of the routers (default kvway:" KVW_VERSION ")\n"
	      "      --kvtierd-image IMAGE\n"
	      "                           "
	      "of each kvtierd that is rendered (default kvtierd:" KVW_VERSION ")\n"
	      "      --kvway-replicas N   "
	      "routers (default 2 with a Redis; 1 without, or if LMCache's workers\n"
	      "                           report to kvway)\n"
	      "      --redis-image IMAGE  of the Redis that is rendered (default redis:7.4)\n"
	      "      --cache NAME         "
	      "lmcache or kvtier (default lmcache); it must be in the workers' image\n"
	      "      --lmcache VERSION    "
	      "of LMCache, where the image's name does not say it: from 0.5.6 on\n"
	      "                           it is a process of its own\n"
	      "      --l1-size SIZE       memory for the cache of each rank (default 5GiB)\n"
	      "      --l2-size SIZE       "
	      "memory of a Redis or of each kvtierd that is rendered (default 32GiB)\n"
	      "      --nvme-path FOLDER   "
	      "of the nodes, for each kvtierd that is rendered (default /opt/dlami/nvme where\n"
	      "                           kvway knows the instance types, else none)\n"
	      "      --nvme-size SIZE     what kvtierd may use there (default 200GiB)\n"
	      "      --cluster-domain X   of the cluster's names (default cluster.local)\n"
	      "      --only PART          kvway-config, workers, router, cache or monitoring\n"
	      "      --strict             a field that kvway has no use for is a mistake\n"
	      "      --fields             every field and what becomes of it, and nothing else\n"
	      "  -h, --help               this text\n"
	      "\n"
	      "Every field is used, or named on standard error with its line. Nothing is written "
	      "if there is a\n"
	      "mistake; each has a line there, too.\n"
	      "\n"
	      "Exit status: 0 written, 1 mistakes in the manifest, 2 wrong usage.\n",
		out);
}

__attribute__((format(printf, 2, 3))) static void wrong(struct reader *r, const char *format, ...)
{
	va_list args;

	if (r->bad)
		return;
	r->bad = true;
	fputs("kvway render: ", r->err);
	va_start(args, format);
	vfprintf(r->err, format, args);
	va_end(args);
	fputs("\nTry `kvway render --help`.\n", r->err);
}

static void take_number(struct reader *r, const char *flag, int most, int *out)
{
	char *end;
	long value = strtol(optarg, &end, 10);

	if (*end != '\0' || end == optarg || value < 1 || value > most)
		wrong(r, "--%s: found `%s`, expected a whole number from 1 to %d", flag, optarg,
			most);
	else
		*out = (int)value;
}

static void take_size(struct reader *r, const char *flag, uint64_t *out)
{
	const struct kvw_type *type = &kvw_type_SIZE;
	struct kvw_fault fault = {0};
	union kvw_value value;

	if (type->parse(type, kvw_slice_of(optarg), NULL, &value, &fault) != KVW_OK ||
		value.size < 64 * MIB || value.size > 65536 * GIB || value.size % MIB != 0)
		wrong(r,
			"--%s: found `%s`, expected a size from 64MiB on such as 20GiB, in whole "
			"MiB",
			flag, optarg);
	else
		*out = value.size;
}

static void take_part(struct reader *r)
{
	struct kvw_suggest near;

	kvw_suggest_start(&near, optarg);
	for (size_t i = 0; i < PART_COUNT; i++) {
		if (strcmp(optarg, parts[i].name) == 0) {
			r->options->part = parts[i].part;
			return;
		}
		kvw_suggest_offer(&near, parts[i].name, parts[i].name);
	}
	wrong(r,
		"--only: found `%s`, expected kvway-config, workers, router, cache or "
		"monitoring%s%s%s",
		optarg, near.best != NULL ? "; did you mean `" : "",
		near.best != NULL ? near.best : "", near.best != NULL ? "`?" : "");
}

static void take_cache(struct reader *r)
{
	if (strcmp(optarg, "kvtier") == 0)
		r->options->kvtier = true;
	else if (strcmp(optarg, "lmcache") != 0)
		wrong(r, "--cache: found `%s`, expected lmcache or kvtier", optarg);
}

/* A flag with a text. */
static const char **text_of(struct kvw_render_options *options, int option)
{
	switch (option) {
	case OPTION_FILE:
		return &options->file;
	case OPTION_OUTPUT:
		return &options->output;
	case OPTION_NAMESPACE:
		return &options->namespace;
	case OPTION_IMAGE:
		return &options->image;
	case OPTION_KVWAY_IMAGE:
		return &options->kvway_image;
	case OPTION_KVTIERD_IMAGE:
		return &options->kvtierd_image;
	case OPTION_REDIS_IMAGE:
		return &options->redis_image;
	case OPTION_SOURCE:
		return &options->model_source;
	case OPTION_DOMAIN:
		return &options->cluster_domain;
	case OPTION_LMCACHE:
		return &options->lmcache;
	case OPTION_NVME_PATH:
		return &options->nvme_path;
	default:
		return NULL;
	}
}

static void take_flag(struct reader *r, int option)
{
	struct kvw_render_options *options = r->options;
	const char **text = text_of(options, option);

	if (text != NULL) {
		*text = optarg;
		if (optarg[0] == '\0')
			wrong(r, "a flag has an empty value");
		return;
	}
	switch (option) {
	case OPTION_REPLICAS:
		take_number(r, "kvway-replicas", 100, &options->kvway_replicas);
		break;
	case OPTION_GPUS:
		take_number(r, "gpus", 64, &options->gpus);
		break;
	case OPTION_L1:
		take_size(r, "l1-size", &options->l1_size);
		break;
	case OPTION_L2:
		take_size(r, "l2-size", &options->l2_size);
		break;
	case OPTION_NVME:
		take_size(r, "nvme-size", &options->nvme_size);
		break;
	case OPTION_CACHE:
		take_cache(r);
		break;
	case OPTION_ONLY:
		take_part(r);
		break;
	case OPTION_STRICT:
		options->strict = true;
		break;
	case OPTION_FIELDS:
		kvw_fields_page(r->out);
		r->helped = true;
		break;
	default:
		print_help(r->out);
		r->helped = true;
	}
}

/* Checks names and images, which become parts of objects' names and of URLs. */
static void check_texts(struct reader *r)
{
	const char *image = "^[A-Za-z0-9][A-Za-z0-9._/:@-]*$";
	const struct kvw_render_options *options = r->options;
	const struct {
		const char *flag, *text, *expression;
		size_t longest;
	} texts[] = {
		{"namespace", options->namespace, "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", 63},
		{"cluster-domain", options->cluster_domain, KVW_DNS_NAME, 128},
		{"nvme-path", options->nvme_path, "^(none|(/[A-Za-z0-9._-]+)+)$", 256},
		{"image", options->image, image, 512},
		{"lmcache", options->lmcache, "^v?[0-9]{1,3}(\\.[0-9]{1,3}){1,2}([^0-9].*)?$", 64},
		{"kvway-image", options->kvway_image, image, 512},
		{"kvtierd-image", options->kvtierd_image, image, 512},
		{"redis-image", options->redis_image, image, 512},
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (texts[i].text != NULL &&
			(strlen(texts[i].text) > texts[i].longest ||
				!kvw_manifest_fits(texts[i].text, texts[i].expression)))
			wrong(r, "--%s: found `%.200s`, expected a text that fits %s",
				texts[i].flag, texts[i].text, texts[i].expression);
}

static void take_option(struct reader *r, int option, const char *argument)
{
	if (option == ':') {
		wrong(r, "%s needs a value", argument);
	} else if (option == '?') {
		struct kvw_suggest near;

		kvw_suggest_start(&near, argument + strspn(argument, "-"));
		for (size_t i = 0; flags[i].name != NULL; i++)
			kvw_suggest_offer(&near, flags[i].name, flags[i].name);
		wrong(r, "unknown flag %s%s%s%s", argument,
			near.best != NULL ? "; did you mean `--" : "",
			near.best != NULL ? near.best : "", near.best != NULL ? "`?" : "");
	} else {
		for (size_t i = 0; flags[i].name != NULL; i++) {
			if (flags[i].val != option)
				continue;
			if (r->given & UINT32_C(1) << i)
				wrong(r, "--%s was given twice", flags[i].name);
			r->given |= UINT32_C(1) << i;
		}
		if (!r->bad)
			take_flag(r, option);
	}
}

enum kvw_options_result kvw_render_options_parse(
	int argc, char **argv, FILE *out, FILE *err, struct kvw_render_options *options)
{
	struct reader r = {.options = options, .out = out, .err = err};
	int option;

	*options = (struct kvw_render_options){.output = "-",
		.kvway_image = "kvway:" KVW_VERSION,
		.kvtierd_image = "kvtierd:" KVW_VERSION,
		.redis_image = "redis:7.4",
		.cluster_domain = "cluster.local",
		.l1_size = 5 * GIB,
		.l2_size = 32 * GIB,
		.nvme_size = 200 * GIB,
		.part = KVW_PART_OBJECTS};
	opterr = 0;
	optind = 0; /* glibc: start over */
	while (!r.bad && !r.helped) {
		option = getopt_long(argc, argv, ":f:o:n:h", flags, NULL);
		if (option == -1)
			break;
		take_option(&r, option, argv[optind - 1]);
	}
	if (!r.bad && !r.helped && optind < argc)
		wrong(&r, "found `%s`, expected flags only", argv[optind]);
	if (!r.bad && !r.helped && options->file == NULL)
		wrong(&r, "no manifest: give -f FILE");
	if (!r.bad && !r.helped)
		check_texts(&r);
	return r.bad ? KVW_OPTIONS_WRONG : r.helped ? KVW_OPTIONS_DONE : KVW_OPTIONS_GO;
}
