/*
 * size.c - `kvtier size`: bytes per token of a model, room on this machine, and when to offload.
 */
#include "command/size.h"

#include <string.h>

#include "command/advice.h"
#include "command/command.h"
#include "command/format.h"
#include "memory/neighbours.h"
#include "tiers/nvme/nvme_share.h"

/* What the command line said, as text. */
struct arguments {
	const char *dtype, *tensor, *chunk, *context, *prefill, *flops, *parameters, *utilisation;
	const char *path, *l1_rate, *nvme_rate;
	const char *config;
	bool json;
};

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
		{"--json", NULL, &a->json},
		{0},
	};
	int operands = kvt_options_take(argc, argv, options, &a->config, 1);

	if (operands == 0)
		kvt_command_wrong("size", "expected a model's config.json, or its folder");
	return operands == 1;
}

/* A number of an option; `out` keeps what it has where the option is absent. */
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
	if ((a->flops == NULL) != (a->parameters == NULL)) {
		kvt_command_wrong("size", "--flops and --parameters go together");
		return false;
	}
	if (a->flops != NULL && a->prefill != NULL) {
		kvt_command_wrong("size", "--prefill says what --flops would estimate: give one");
		return false;
	}
	if (a->flops != NULL)
		s->prefill = kvt_prefill_from_flops(s->flops, s->utilisation, s->parameters);
	return true;
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
	return take_prefill(a, s);
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
	l1->where = "given";
	nvme->name = "nvme";
	nvme->where = "given";
	if (a->path != NULL) {
		kvt_nvme_share(&machine, a->path, NULL, s->tensor, &share, nvme->why);
		nvme->bytes = share.part;
	} else {
		snprintf(nvme->why, sizeof(nvme->why), "--path FOLDER says where it would lie");
	}
	if (l1->rate <= 0) {
		l1->rate = kvt_measure_copy();
		l1->where = "one thread's copy, measured here";
	}
}

int kvt_command_size(int argc, char **argv)
{
	struct arguments a = {0};
	struct kvt_size s = {0};
	char why[KVT_MODEL_WHY];

	if (!take_arguments(argc, argv, &a) || !take_numbers(&a, &s))
		return KVT_EXIT_USAGE;
	if (!kvt_model_load(a.config, a.dtype, &s.model, why)) {
		fprintf(stderr, "kvtier size: %s: %s\n", a.config, why);
		return KVT_EXIT_FAILED;
	}
	if (!kvt_model_divides(&s.model, s.tensor)) {
		fprintf(stderr, "kvtier size: %s: %u ranks cannot share its heads evenly\n",
			a.config, s.tensor);
		return KVT_EXIT_FAILED;
	}
	s.full_bytes = kvt_model_token_bytes(&s.model, KVT_LAYER_FULL, s.tensor);
	s.window_bytes = kvt_model_token_bytes(&s.model, KVT_LAYER_WINDOW, s.tensor);
	if (s.context == 0)
		s.context = s.model.context != 0 ? s.model.context : 8192;
	look_at_machine(&a, &s);
	if (!a.json)
		kvt_size_print(&s, stdout);
	else if (!kvt_size_print_json(&s, stdout))
		return KVT_EXIT_FAILED;
	return KVT_EXIT_OK;
}
