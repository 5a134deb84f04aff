/*
 * metrics_reference.c - the list of metrics as data, and METRICS.md made from it.
 *
 * Apart from the collectors, so that the generator links nothing else.
 */
#include "admin/metrics.h"

static const struct kvw_metric_info infos[] = {
#define KVW_METRIC(name, type, labels, collector, arg, help) {name, #type, labels, help},
#include "admin/metrics.def"
};

const struct kvw_metric_info *kvw_metric_info(size_t i)
{
	return i < sizeof(infos) / sizeof(infos[0]) ? &infos[i] : NULL;
}

void kvw_metrics_reference(FILE *out)
{
	const struct kvw_metric_info *info;

	fputs("# Metrics of kvway\n\n"
	      "Generated from `metrics.def` by `kvw-metrics-reference`; a test compares.\n"
	      "`GET /metrics` shows them in this order as Prometheus text 0.0.4.\n"
	      "`server` and `worker` are the URL of a worker, `none` where no worker was chosen;\n"
	      "`model` is a name that some worker serves, `unknown` or `other`.\n\n"
	      "| Name | Type | Labels | What it is |\n"
	      "|---|---|---|---|\n",
		out);
	for (size_t i = 0; (info = kvw_metric_info(i)) != NULL; i++) {
		fprintf(out, "| `%s` | %s | %s%s%s | ", info->name, info->type,
			info->labels[0] != '\0' ? "`" : "", info->labels,
			info->labels[0] != '\0' ? "`" : "");
		for (const char *c = info->help; *c != '\0'; c++) {
			if (*c == '|')
				fputc('\\', out);
			fputc(*c, out);
		}
		fputs(" |\n", out);
	}
}
