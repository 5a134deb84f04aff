/*
 * size.c - `kvtier size`: bytes per token of a model, room on this machine, and when to offload.
 */
#include "command/size.h"

#include <string.h>

#include "command/advice.h"
#include "command/command.h"
#include "command/format.h"
#include "command/weights.h"
#include "memory/neighbours.h"
#include "tiers/nvme/nvme_share.h"

/* The arguments of the command line, as text. */
struct arguments {
	const char *dtype, *tensor, *chunk, *context, *prefill, *flops, *parameters, *utilisation;
	const char *path, *l1_rate, *nvme_rate;
	const char *gpu, *gpu_share, *ram, *disk, *weights, *model;
	const char *config;
	bool json;
};

static bool wants_list(const struct arguments *a)
{
	return a->gpu != NULL && strcmp(a->gpu, "list") == 0;
}

static bool take_arguments(int argc, char **argv, struct arguments *a)
{
	const struct kvt_option options[] = {
		{"--dtype", &a->dtype, NULL},
		{"--tensor-parallel", &a->tensor, NULL},
		{"--chunk", &a->chunk, NULL},
		{"--context", &a->context, NULL},
		{"--prefill", &a->prefill, NULL},
		{"--flops", &a->flops, NULL},
		{"--parameters", &a->parameters, NULL},
		{"--utilisation", &a->utilisation, NULL},
		{"--path", &a->path, NULL},
		{"--l1-rate", &a->l1_rate, NULL},
		{"--nvme-rate", &a->nvme_rate, NULL},
		{"--gpu", &a->gpu, NULL},
		{"--gpu-share", &a->gpu_share, NULL},
		{"--ram", &a->ram, NULL},
		{"--disk", &a->disk, NULL},
		{"--weights", &a->weights, NULL},
		{"--model", &a->model, NULL},
		{"--json", NULL, &a->json},
		{0},
	};
	int operands = kvt_options_take(argc, argv, options, &a->config, 1);

	if (operands < 0 || wants_list(a))
		return operands >= 0;
	if (operands == 1 && a->model != NULL) {
		kvt_command_wrong("size", "--model names what `%.100s` names too: give one", a->config);
		return false;
	}
	if (a->config == NULL)
		a->config = a->model;
	if (a->config == NULL)
		kvt_command_wrong("size", "expected a model's config.json, or its folder");
	return a->config != NULL;
}

/* Reads the number of an option; if the option was not given, `out` is not changed. */
static bool take_number(const char *name, const char *text, double most, double *out)
{
	double value;

	if (text == NULL)
		return true;
	if (!kvt_parse_number(text, &value) || value > most) {
		kvt_command_wrong("size", "%s: found `%s`, expected a number from above 0 to %g",
			name, text, most);
		return false;
	}
	*out = value;
	return true;
}

static bool take_whole(const char *name, const char *text, double most, double *out)
{
	if (!take_number(name, text, most, out))
		return false;
	if (*out >= 1 && *out == (double)(uint64_t)*out)
		return true;
	kvt_command_wrong("size", "%s: found `%s`, expected a whole number", name, text);
	return false;
}

static bool take_prefill(const struct arguments *a, struct kvt_size *s)
{
	s->utilisation = 0.4;
	if (!take_number("--prefill", a->prefill, 1e12, &s->prefill) ||
		!take_number("--flops", a->flops, 1e21, &s->flops) ||
		!take_number("--parameters", a->parameters, 1e15, &s->parameters) ||
		!take_number("--utilisation", a->utilisation, 1, &s->utilisation))
		return false;
	if ((a->flops == NULL) != (a->parameters == NULL) && a->gpu == NULL) {
		kvt_command_wrong("size", "--flops and --parameters go together");
		return false;
	}
	if (a->flops != NULL && a->prefill != NULL) {
		kvt_command_wrong("size", "--prefill says what --flops would estimate: give one");
		return false;
	}
	if (a->flops != NULL && a->parameters != NULL)
		s->prefill = kvt_prefill_from_flops(s->flops, s->utilisation, s->parameters);
	return true;
}

static bool take_bytes(const char *name, const char *text, uint64_t *out)
{
	if (text == NULL || (kvt_parse_bytes(text, out) && *out > 0))
		return true;
	kvt_command_wrong("size", "%s: found `%.100s`, expected such as 80GB or 80GiB", name, text);
	return false;
}

static bool take_gpu(const struct arguments *a, struct kvt_offload *o)
{
	char why[KVT_GPUS_WHY];

	if (a->gpu == NULL) {
		if (a->ram == NULL && a->disk == NULL && a->weights == NULL && a->gpu_share == NULL)
			return true;
		kvt_command_wrong("size", "--ram, --disk, --weights and --gpu-share go with --gpu");
		return false;
	}
	if (!kvt_gpus_parse(a->gpu, &o->count, &o->gpu, why)) {
		kvt_command_wrong("size", "--gpu: %s", why);
		return false;
	}
	o->share = KVT_OFFLOAD_SHARE;
	o->weights_from = o->ram_from = "given";
	return take_number("--gpu-share", a->gpu_share, 1, &o->share) &&
	       take_bytes("--ram", a->ram, &o->ram) && take_bytes("--disk", a->disk, &o->disk) &&
	       take_bytes("--weights", a->weights, &o->weights);
}

static bool take_numbers(const struct arguments *a, struct kvt_size *s)
{
	double tensor = 1, chunk = 256, context = 0;

	if (!take_whole("--tensor-parallel", a->tensor, 4096, &tensor) ||
		!take_whole("--chunk", a->chunk, 1e6, &chunk) ||
		(a->context != NULL && !take_whole("--context", a->context, 1e9, &context)) ||
		!take_number("--l1-rate", a->l1_rate, 1e15, &s->tiers[0].rate) ||
		!take_number("--nvme-rate", a->nvme_rate, 1e15, &s->tiers[1].rate))
		return false;
	s->tensor = (uint32_t)tensor;
	s->chunk_tokens = (uint32_t)chunk;
	s->context = (uint64_t)context;
	return take_prefill(a, s) && take_gpu(a, &s->offload);
}

static bool no(const struct arguments *a, const char *why)
{
	fprintf(stderr, "kvtier size: %s: %s\n", a->config, why);
	return false;
}

/* Computes how many GPUs a copy of the model needs, and how much room they have for KV. */
static bool spread(const struct arguments *a, struct kvt_size *s)
{
	struct kvt_offload *o = &s->offload;
	const struct kvt_model *m = &s->model;

	if (o->count == 0)
		return true;
	if (o->weights == 0) {
		o->weights = kvt_weights_files(a->config);
		o->weights_from = "its files";
	}
	if (o->weights == 0) {
		o->weights = (uint64_t)(m->parameters * m->weight_bytes);
		o->weights_from = "estimated from its shapes; --weights says otherwise";
	}
	if (o->weights == 0)
		return no(a, "its size is not known: --weights says it");
	if (!kvt_offload_spread(o, m, a->tensor != NULL ? s->tensor : 0, s->context))
		return no(a, "so many ranks are more than there are GPUs, or cannot share its heads evenly");
	if (o->chosen.tokens <= 0)
		return no(a, "its weights do not fit the GPUs of one copy");
	s->tensor = o->chosen.gpus;
	return true;
}

/* Takes the rates of the GPUs if none were given. */
static void take_rates(const struct arguments *a, struct kvt_size *s)
{
	struct kvt_offload *o = &s->offload;

	if (o->count == 0)
		return;
	if (a->parameters == NULL)
		s->parameters = s->model.active;
	if (a->flops == NULL && a->prefill == NULL)
		s->flops = o->gpu.flops * s->tensor;
	if (a->prefill == NULL)
		s->prefill = kvt_prefill_from_flops(s->flops, s->utilisation, s->parameters);
	o->prefill_flops = s->prefill * 2 * s->parameters;
	if (a->l1_rate == NULL && o->gpu.bus_rate > 0) {
		s->tiers[0].rate = o->gpu.bus_rate;
		s->tiers[0].where = "of such a GPU";
	}
	o->memory_rate = s->tiers[0].rate * s->tensor;
	o->disk_rate = s->tiers[1].rate;
}

static void look_at_machine(const struct arguments *a, struct kvt_size *s)
{
	struct kvt_size_tier *l1 = &s->tiers[0], *nvme = &s->tiers[1];
	struct kvt_neighbours neighbours;
	struct kvt_nvme_share share;
	struct kvt_machine machine;

	kvt_machine_read("", a->path, &machine);
	kvt_neighbours_look(&neighbours, NULL, s->tensor, &machine);
	kvt_neighbours_leave(&neighbours);
	l1->name = "l1";
	l1->bytes = kvt_size_l1(&machine, "anon", l1->why);
	if (l1->where == NULL)
		l1->where = "given";
	nvme->name = "nvme";
	nvme->where = "given";
	if (a->path != NULL) {
		kvt_nvme_share(&machine, a->path, NULL, s->tensor, &share, nvme->why);
		nvme->bytes = share.part;
	} else {
		snprintf(nvme->why, sizeof(nvme->why), "--path FOLDER says where it would lie");
	}
	if (s->offload.count > 0) {
		if (s->offload.ram == 0) {
			s->offload.ram = machine.memory_total;
			s->offload.ram_from = "this machine's";
		}
		if (s->offload.disk == 0 && a->path != NULL)
			s->offload.disk = share.whole;
		kvt_offload_below(&s->offload, &s->model);
	} else if (l1->rate <= 0) {
		l1->rate = kvt_measure_copy();
		l1->where = "one thread's copy, measured here";
	}
}

int kvt_command_size(int argc, char **argv)
{
	struct arguments a = {0};
	struct kvt_size s = {0};
	char why[KVT_MODEL_WHY];

	if (!take_arguments(argc, argv, &a))
		return KVT_EXIT_USAGE;
	if (wants_list(&a)) {
		kvt_gpus_list(stdout);
		return KVT_EXIT_OK;
	}
	if (!take_numbers(&a, &s))
		return KVT_EXIT_USAGE;
	if (!kvt_model_load(a.config, a.dtype, &s.model, why)) {
		fprintf(stderr, "kvtier size: %s: %s\n", a.config, why);
		return KVT_EXIT_FAILED;
	}
	if (s.context == 0)
		s.context = s.model.context != 0 ? s.model.context : 8192;
	if (!spread(&a, &s))
		return KVT_EXIT_FAILED;
	take_rates(&a, &s);
	if (!kvt_model_divides(&s.model, s.tensor)) {
		fprintf(stderr, "kvtier size: %s: %u ranks cannot share its heads evenly\n",
			a.config, s.tensor);
		return KVT_EXIT_FAILED;
	}
	s.full_bytes = kvt_model_token_bytes(&s.model, KVT_LAYER_FULL, s.tensor);
	s.window_bytes = kvt_model_token_bytes(&s.model, KVT_LAYER_WINDOW, s.tensor);
	look_at_machine(&a, &s);
	if (!a.json)
		kvt_size_print(&s, stdout);
	else if (!kvt_size_print_json(&s, stdout))
		return KVT_EXIT_FAILED;
	return KVT_EXIT_OK;
}
