/*
 * one_model.c - see one_model.h.
 *
 * Names of models have slashes, which some clients write as they are and some as %2F. The entry is taken out of the
 * list that /v1/models answers, so that both say the same, and a key sees one where it sees the other.
 */
#include "proxy/one_model.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "proxy/reply.h"

#define MOST_ID 1024 /* bytes of a model's name that is looked for */

/* The entry, as text that the caller frees; NULL: there is none, or no memory. */
static char *entry_of(const struct kvw_local_answer *list, struct kvw_slice id)
{
	json_t *all = json_loadb(list->body, list->len, 0, NULL);
	char *text = NULL;
	json_t *entry;
	size_t i;

	json_array_foreach(json_object_get(all, "data"), i, entry) {
		struct kvw_slice name = kvw_slice_of(json_string_value(json_object_get(entry, "id")));

		if (text == NULL && kvw_slice_equal(name, id))
			text = json_dumps(entry, JSON_COMPACT | JSON_PRESERVE_ORDER);
	}
	json_decref(all);
	return text;
}

void kvw_one_model_answer(struct kvw_exchange *x, struct kvw_slice path)
{
	const struct kvw_slice list_path = KVW_SLICE("/v1/models");
	struct kvw_local_answer list;
	char id[MOST_ID], message[MOST_ID + 64];
	char *text = NULL;
	size_t len = kvw_path_model(path, id, sizeof(id));

	if (len > 0) {
		if (kvw_admin_answer(x->loop->admin, list_path, x->caller.key, x->loop->now_ns, &list) != KVW_OK) {
			kvw_reply_error(x, 500, "out of memory");
			return;
		}
		text = entry_of(&list, (struct kvw_slice){id, len});
		free(list.body);
	}
	if (text != NULL) {
		kvw_reply(x, 200, "application/json", NULL, text, kvw_slice_of(text).len);
	} else {
		(void)snprintf(message, sizeof(message), "The model `%.*s` does not exist.", (int)len, id);
		kvw_reply_error_as(x, 404, "NotFoundError", "model", NULL, message);
	}
	free(text);
}
