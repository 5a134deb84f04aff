/* problems.c - collects problems, and orders them. */
#include "status/problems.h"

#include <stdarg.h>
#include <stdio.h>

#define TEXT_MOST 1024

json_t *kvw_problem_text(const char *format, ...)
{
	char text[TEXT_MOST];
	va_list args;
	json_t *json;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	json = json_string(text);
	for (char *at = text; json == NULL && *at != '\0'; at++)
		if ((unsigned char)*at >= 0x80)
			*at = '?';
	return json != NULL ? json : json_string(text);
}

void kvw_problem_add_take(struct kvw_problems *problems, enum kvw_severity severity,
	const char *code, const char *worker, json_t *what, json_t *why, json_t *do_)
{
	static const char *const severities[KVW_SEVERITIES] = {"error", "warning", "note"};
	json_t *problem =
		json_pack("{s:s, s:s, s:s?, s:o, s:o, s:o}", "severity", severities[severity],
			"code", code, "worker", worker, "what", what, "why", why, "do", do_);

	if (problems->count++ < KVW_PROBLEMS_MOST)
		json_array_append_new(problems->lists[severity], problem);
	else
		json_decref(problem);
}

json_t *kvw_problems_json(const struct kvw_problem_facts *facts)
{
	struct kvw_problems problems = {.facts = facts};
	json_t *all = json_array();

	for (int i = 0; i < KVW_SEVERITIES; i++)
		problems.lists[i] = json_array();
	kvw_problems_of_settings(&problems);
	kvw_problems_of_traffic(&problems);
	kvw_problems_of_workers(&problems);
	if (problems.count > KVW_PROBLEMS_MOST) {
		json_t *what = kvw_problem_text(
			"%zu more problems are not shown.", problems.count - KVW_PROBLEMS_MOST);

		problems.count = 0;
		kvw_problem_add_take(&problems, KVW_SEVERITY_NOTE, "more", NULL, what,
			kvw_problem_text("The list has %d places.", KVW_PROBLEMS_MOST),
			kvw_problem_text("Look at the workers' states: kvway workers."));
	}
	for (int i = 0; i < KVW_SEVERITIES; i++) {
		if (all != NULL && json_array_extend(all, problems.lists[i]) != 0) {
			json_decref(all);
			all = NULL;
		}
		json_decref(problems.lists[i]);
	}
	return all;
}
