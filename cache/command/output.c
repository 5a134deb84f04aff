/*
 * output.c - JSON output of verbs: a list with an object for each store.
 */
#include "command/output.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/page.h"
#include "command/command.h"

static int no_memory(const char *verb)
{
	fprintf(stderr, "kvtier %s: no memory\n", verb);
	return KVT_EXIT_FAILED;
}

json_t *kvt_json_any_text(const char *text)
{
	struct kvw_page page = {0};
	json_t *json = NULL;

	kvw_page_json(&page, kvw_slice_of(text));
	if (!page.failed)
		json = json_loadb(page.data, page.len, JSON_DECODE_ANY, NULL);
	free(page.data);
	return json;
}

int kvt_json_add_take(const char *verb, json_t *list, json_t *one)
{
	return json_array_append_new(list, one) == 0 ? KVT_EXIT_OK : no_memory(verb);
}

int kvt_json_print_take(const char *verb, json_t *list, int result)
{
	if (json_dumpf(list, stdout, JSON_INDENT(2)) == 0)
		putchar('\n');
	else if (ferror(stdout) == 0) /* otherwise main reports it */
		result = result == KVT_EXIT_OK ? no_memory(verb) : result;
	json_decref(list);
	return result;
}
