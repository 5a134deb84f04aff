/* problems.c - collects problems, and orders them. */
#include "status/problems.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT_MOST 1024 /* bytes of two sentences of a format */

json_t *kvw_problem_text(char *text, size_t len)
{
	json_t *json = json_stringn(text, len);

	for (size_t i = 0; json == NULL && i < len; i++)
		if ((unsigned char)text[i] >= 0x80)
			text[i] = '?';
	return json != NULL ? json : json_stringn(text, len);
}

/* Returns how long the text of so many bytes of a format is. Its end cannot be looked for in the
 * text, where arguments may have newlines, too. */
static size_t text_len(const char *format, size_t len, va_list args)
{
	char begin[FORMAT_MOST];

	(void)snprintf(begin, sizeof(begin), "%.*s", (int)len, format);
	return (size_t)vsnprintf(NULL, 0, begin, args);
}

void kvw_problem_add(struct kvw_problems *problems, enum kvw_severity severity, const char *code,
	const char *worker, const char *format, ...)
{
	static const char *const severities[KVW_SEVERITIES] = {"error", "warning", "note"};
	const char *first = strchr(format, '\n'), *second = strchr(first + 1, '\n');
	size_t what, why;
	va_list args;
	char *text;
	int len;

	if (problems->count++ >= KVW_PROBLEMS_MOST)
		return;
	va_start(args, format);
	what = text_len(format, (size_t)(first - format), args);
	va_end(args);
	va_start(args, format);
	why = text_len(format, (size_t)(second - format), args);
	va_end(args);
	va_start(args, format);
	len = vasprintf(&text, format, args);
	va_end(args);
	if (len < 0)
		return;
	json_array_append_new(problems->lists[severity],
		json_pack("{s:s, s:s, s:s?, s:o, s:o, s:o}", "severity", severities[severity],
			"code", code, "worker", worker, "what", kvw_problem_text(text, what), "why",
			kvw_problem_text(text + what + 1, why - what - 1), "do",
			kvw_problem_text(text + why + 1, (size_t)len - why - 1)));
	free(text);
}

json_t *kvw_problems_json(const struct kvw_problem_facts *facts)
{
	struct kvw_problems problems = {.facts = facts};
	json_t *all = json_array();
	size_t more;

	for (int i = 0; i < KVW_SEVERITIES; i++)
		problems.lists[i] = json_array();
	kvw_problems_of_settings(&problems);
	kvw_problems_of_traffic(&problems);
	kvw_problems_of_workers(&problems);
	if (problems.count > KVW_PROBLEMS_MOST) {
		more = problems.count - KVW_PROBLEMS_MOST;
		problems.count = 0;
		kvw_problem_add(&problems, KVW_SEVERITY_NOTE, "more", NULL,
			"%zu more problems are not shown.\n"
			"The list has %d places.\n"
			"Look at the workers' states: kvway workers.",
			more, KVW_PROBLEMS_MOST);
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
