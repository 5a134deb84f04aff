/*
 * settings.c - initializes, copies and frees a configuration, and checks it for kvt_open.
 *
 * The struct grows only at its end, so that a caller compiled with an older header passes a shorter
 * one: all functions here work on a whole struct of this build and copy as much as the caller has.
 */
#include "options/settings.h"

#include <stdlib.h>
#include <string.h>

#include "options/reader.h"

void kvt_config_init(struct kvt_config *config, size_t size)
{
	struct kvt_config whole = {0};

	for (size_t i = 0; i < KVT_SETTING_COUNT; i++)
		kvt_setting_set_default(&kvt_settings[i], &whole);
	whole.size = (uint32_t)size;
	whole.abi = KVT_ABI;
	memset(config, 0, size);
	memcpy(config, &whole, size < sizeof(whole) ? size : sizeof(whole));
}

void kvt_config_finish(struct kvt_config *config)
{
	kvt_config_texts_free(config->texts);
	config->texts = NULL;
	for (size_t i = 0; i < KVT_SETTING_COUNT; i++)
		if (kvt_settings[i].type->owned &&
			kvt_settings[i].offset + kvt_settings[i].type->size <= config->size)
			kvt_setting_set_default(&kvt_settings[i], config);
}

/* Returns whether a caller may have left a member out: its value is 0 or NULL, and the key has no
 * such value. */
static bool is_left_out(const struct kvw_key *setting, const struct kvt_config *config)
{
	static const unsigned char zeros[sizeof(union kvw_value)];
	struct kvw_fault fault;

	return memcmp((const char *)config + setting->offset, zeros, setting->type->size) == 0 &&
	       (setting->type->owned || !kvt_setting_holds(setting, config, &fault));
}

void kvt_settings_fill(struct kvt_config *config)
{
	for (size_t i = 0; i < KVT_SETTING_COUNT; i++)
		if (is_left_out(&kvt_settings[i], config))
			kvt_setting_set_default(&kvt_settings[i], config);
}

static const char *keep(struct kvt_config *config, const char *text)
{
	struct kvt_config_texts *kept = malloc(sizeof(*kept));

	if (kept == NULL)
		return NULL;
	kept->text = strdup(text);
	kept->next = config->texts;
	config->texts = kept;
	return kept->text;
}

enum kvt_status kvt_settings_copy(const struct kvt_config *from, struct kvt_config *out)
{
	struct kvt_config copy = *from;

	copy.texts = NULL;
	for (size_t i = 0; i < KVT_SETTING_COUNT; i++) {
		const char **member = (const char **)((char *)&copy + kvt_settings[i].offset);

		if (!kvt_settings[i].type->owned || *member == NULL)
			continue;
		*member = keep(&copy, *member);
		if (*member == NULL) {
			kvt_config_texts_free(copy.texts);
			return KVT_ENOMEM;
		}
	}
	*out = copy;
	return KVT_OK;
}

void kvt_settings_forget_texts(struct kvt_config *config)
{
	for (size_t i = 0; i < KVT_SETTING_COUNT; i++)
		if (kvt_settings[i].type->owned)
			memset((char *)config + kvt_settings[i].offset, 0,
				kvt_settings[i].type->size);
}

void kvt_text_free(char *text)
{
	free(text);
}

/* Checks one member of a C caller's configuration. */
static void check_member(
	const struct kvw_key *setting, struct kvt_config *config, FILE *out, size_t *mistakes)
{
	char printed[KVT_SETTING_PRINT], quoted[KVW_REPORT_QUOTE];
	const char *text = NULL;
	struct kvw_fault fault;

	if (setting->type->owned) {
		memcpy(&text, (const char *)config + setting->offset, sizeof(text));
		if (text == NULL) {
			kvt_setting_set_default(setting, config);
			return;
		}
	}
	if (kvt_setting_holds(setting, config, &fault))
		return;
	kvt_setting_print(setting, config, printed);
	if (text == NULL)
		text = printed;
	fprintf(out, "%s: found %s, expected %s\n", setting->path,
		kvw_report_quote(quoted, text, strlen(text)), fault.expected);
	(*mistakes)++;
	kvt_setting_set_default(setting, config);
}

enum kvt_status kvt_settings_check(
	const struct kvt_config *config, struct kvt_config *out, char **report)
{
	struct kvt_config whole;
	char *said = NULL;
	size_t said_bytes = 0, mistakes = 0;
	FILE *lines;

	if (config->abi != KVT_ABI || config->size < sizeof(config->size) + sizeof(config->abi))
		return KVT_ENOTSUP;
	lines = open_memstream(&said, &said_bytes);
	if (lines == NULL)
		return KVT_ENOMEM;
	kvt_config_init(&whole, sizeof(whole));
	memcpy(&whole, config, config->size < sizeof(whole) ? config->size : sizeof(whole));
	whole.size = sizeof(whole);
	whole.texts = NULL; /* borrowed */
	for (size_t i = 0; i < KVT_SETTING_COUNT; i++)
		check_member(&kvt_settings[i], &whole, lines, &mistakes);
	if (whole.breaker_open_max_ns < whole.breaker_open_ns) {
		fprintf(lines, "control.breaker_open_max: found less than control.breaker_open, "
			       "expected at least as much\n");
		mistakes++;
		whole.breaker_open_max_ns = whole.breaker_open_ns;
	}
	if (fclose(lines) != 0) {
		free(said);
		return KVT_ENOMEM;
	}
	*out = whole;
	if (mistakes == 0 || report == NULL) {
		free(said);
		said = NULL;
	}
	if (report != NULL)
		*report = said;
	return mistakes == 0 ? KVT_OK : KVT_EINVAL;
}
