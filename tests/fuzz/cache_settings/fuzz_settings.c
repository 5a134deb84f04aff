/*
 * fuzz_settings.c - any bytes as kvtier's configuration.
 *
 * Beyond "no crash" it holds kvt_config_read to its word: a refusal says why, in short printable
 * lines; whatever was said, every value is one that kvt_open takes; what was accepted prints as a
 * text that reads as the same.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "options/setting.h"
#include "options/settings.h"
#include "settings/unknown.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void check_report(const char *report)
{
	for (const char *line = report; *line != '\0';) {
		size_t len = strcspn(line, "\n");

		require(line[len] == '\n' && len < 2048);
		require(strncmp(line, "f.yaml:", 7) == 0);
		for (size_t i = 0; i < len; i++)
			require((unsigned char)line[i] >= 0x20 && line[i] != 0x7F);
		line += len + 1;
	}
}

/* The configuration as the YAML that would make it. */
static void print_all(const struct kvt_config *config, FILE *out)
{
	char value[KVT_SETTING_PRINT];

	for (size_t s = 0; s < KVT_SETTING_SECTION_COUNT; s++) {
		const char *section = kvt_setting_sections[s].path;

		if (section[0] != '\0')
			fprintf(out, "%s:\n", section);
		for (size_t i = 0; i < KVT_SETTING_COUNT; i++) {
			const char *name = kvw_name_in(section, kvt_settings[i].path);

			if (name == NULL)
				continue;
			kvt_setting_print(&kvt_settings[i], config, value);
			fprintf(out, "%s%s: %s\n", section[0] != '\0' ? "  " : "", name, value);
		}
	}
}

static void check_config(const struct kvt_config *config)
{
	struct kvt_config good, again;
	char *report = NULL, *yaml = NULL, *second = NULL;
	size_t len = 0, second_len = 0;
	FILE *out = open_memstream(&yaml, &len);

	require(kvt_settings_check(config, &good, &report) == KVT_OK && report == NULL);
	require(out != NULL);
	print_all(config, out);
	fclose(out);
	kvt_config_init(&again, sizeof(again));
	require(kvt_config_read(&again, "again", yaml, len, &report) == KVT_OK);
	out = open_memstream(&second, &second_len);
	require(out != NULL);
	print_all(&again, out);
	fclose(out);
	require(len == second_len && memcmp(yaml, second, len) == 0);
	kvt_config_finish(&again);
	free(yaml);
	free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvt_config config;
	char *report = NULL;
	enum kvt_status status;

	kvt_config_init(&config, sizeof(config));
	status = kvt_config_read(&config, "f.yaml", (const char *)data, size, &report);
	require(status == KVT_OK || status == KVT_EINVAL);
	require((status == KVT_OK) == (report == NULL));
	if (report != NULL)
		check_report(report);
	check_config(&config);
	kvt_text_free(report);
	kvt_config_finish(&config);
	return 0;
}
