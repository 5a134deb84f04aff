/*
 * main.c - kvt_drive CONFIG.yaml: reads commands, answers each with one line of JSON.
 *
 * {"cmd": NAME, "ok": true, ...} or {"cmd": NAME, "ok": false, "error": TEXT}. Ends with 0 at the
 * end of its input, after kvt_close.
 */
#include <stdlib.h>
#include <string.h>

#include "drive.h"

static char *read_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	char *text = calloc(1, 65536);

	if (file != NULL && text != NULL && fread(text, 1, 65535, file) == 0) {
		free(text);
		text = NULL;
	}
	if (file == NULL) {
		free(text);
		text = NULL;
	} else {
		fclose(file);
	}
	return text;
}

static bool open_cache(struct drive *d, const char *path)
{
	char *yaml = read_file(path);
	char *report = NULL;
	enum kvt_status status = KVT_EIO;

	kvt_config_init(&d->config, sizeof(d->config));
	if (yaml != NULL)
		status = kvt_config_read(&d->config, path, yaml, strlen(yaml), &report);
	if (status == KVT_OK)
		status = kvt_open(&d->config, &d->k);
	if (status != KVT_OK)
		fprintf(stderr, "kvt_drive: %s: %s\n%s", path, kvt_status_text(status),
			report != NULL ? report : "");
	kvt_text_free(report);
	free(yaml);
	return status == KVT_OK;
}

static const struct drive_command *command_of(const char *name, size_t words)
{
	for (const struct drive_command *c = drive_commands; c->name != NULL; c++) {
		if (strcmp(c->name, name) == 0 && words >= c->least && words <= c->most)
			return c;
	}
	return NULL;
}

static void obey(struct drive *d, char *line)
{
	char *words[DRIVE_WORDS], *rest = NULL, error[256] = "no such command";
	size_t count = 0;
	const struct drive_command *command;

	for (char *w = strtok_r(line, " \n", &rest); w != NULL && count < DRIVE_WORDS;
		w = strtok_r(NULL, " \n", &rest))
		words[count++] = w;
	if (count == 0)
		return;
	command = command_of(words[0], count - 1);
	if (command != NULL && command->run == drive_run) { /* prints its own lines meanwhile */
		if (command->run(d, words, count, error))
			printf("{\"cmd\":\"%s\",\"ok\":true}\n", words[0]);
		else
			printf("{\"cmd\":\"%s\",\"ok\":false,\"error\":\"%s\"}\n", words[0], error);
		return;
	}
	printf("{\"cmd\":\"%s\"", words[0]);
	if (command != NULL && command->run(d, words, count, error))
		printf(",\"ok\":true}\n");
	else
		printf(",\"ok\":false,\"error\":\"%s\"}\n", error);
}

int main(int argc, char **argv)
{
	struct drive d = {0};
	char line[4096];

	if (argc != 2) {
		fprintf(stderr, "usage: kvt_drive CONFIG.yaml\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!open_cache(&d, argv[1])) {
		kvt_config_finish(&d.config);
		return 1;
	}
	printf("{\"cmd\":\"open\",\"ok\":true}\n");
	while (d.k != NULL && fgets(line, sizeof(line), stdin) != NULL)
		obey(&d, line);
	kvt_close(d.k);
	kvt_config_finish(&d.config);
	return 0;
}
