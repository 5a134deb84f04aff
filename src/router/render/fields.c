/*
 * fields.c - the table of fields, made from fields.def.
 */
#include "render/fields.h"

#include <string.h>

#define NEED true
#define FREE false

const struct kvw_field kvw_fields[KVW_FIELD_COUNT] = {
#define KVW_FIELD(id, kinds, path, type, need, limit, def, text)                                   \
	{KVW_KIND_##kinds, path, KVW_FIELD_##type, need, limit, def, text},
#define KVW_UNUSED(id, kinds, path, text)                                                          \
	{KVW_KIND_##kinds, path, KVW_FIELD_UNUSED, FREE, "", "", text},
#include "render/fields.def"
};

const char *kvw_field_name(const char *section, const char *path)
{
	size_t len = strlen(section);

	if (strncmp(section, path, len) != 0)
		return NULL;
	path += len;
	if (len > 0 && *path++ != '.')
		return NULL;
	return path[0] != '\0' && strpbrk(path, ".[") == NULL ? path : NULL;
}

static void page_table(FILE *out, enum kvw_manifest_kind kind, bool used)
{
	fputs(used ? "| Field | Default | Becomes |\n|---|---|---|\n"
		   : "| Field | Why |\n|---|---|\n",
		out);
	for (size_t i = 0; i < KVW_FIELD_COUNT; i++) {
		const struct kvw_field *field = &kvw_fields[i];

		if ((int)field->kinds != (int)kind || (field->type != KVW_FIELD_UNUSED) != used ||
			field->text[0] == '\0')
			continue;
		fprintf(out, "| `%s` | ", field->path);
		if (used)
			fprintf(out, field->def[0] != '\0' ? "`%s` | " : "%s | ",
				field->def[0] != '\0' ? field->def
				: field->needed       ? "required"
						      : "");
		fprintf(out, "%s |\n", field->text);
	}
}

void kvw_fields_page(FILE *out)
{
	static const struct {
		enum kvw_manifest_kind kind;
		const char *title;
	} pages[] = {{KVW_KIND_BOTH, "Both kinds"},
		{KVW_KIND_ENDPOINT, "InferenceEndpointConfig"},
		{KVW_KIND_JUMPSTART, "JumpStartModel"}};

	fputs("# Fields of HyperPod's manifests\n\nWritten by `kvway render --fields` from "
	      "`fields.def`; do not edit.\n\n"
	      "What `kvway render -f` makes of each field. Those that change nothing are named "
	      "with their line when\n"
	      "they are met.\n",
		out);
	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
		fprintf(out, "\n## %s\n\n", pages[i].title);
		page_table(out, pages[i].kind, true);
		fputs("\nWithout effect:\n\n", out);
		page_table(out, pages[i].kind, false);
	}
}
