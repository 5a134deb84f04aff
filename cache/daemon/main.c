/*
 * main.c - the program kvtierd: its command line.
 */
#include <stdlib.h>
#include <string.h>

#include "options/check_l2.h"
#include "daemon/daemon.h"
#include "daemon/meters.h"
#include "base/read_file.h"
#include "base/standard_out.h"

enum exit_status { EXIT_FINE, EXIT_MISTAKES, EXIT_USAGE, EXIT_CANNOT };

static const char help[] =
	"kvtierd - caches KV blocks for the engines on this machine: in shared memory, on local\n"
	"disks and in Redis\n\n"
	"usage: kvtierd [-c FILE]             serve until SIGTERM\n"
	"       kvtierd check FILE            print every mistake of a configuration, and the\n"
	"                                     values that would be used\n"
	"       kvtierd reference             print every key, as Markdown\n"
	"       kvtierd reference --example   print a YAML file with every key at its default\n"
	"       kvtierd reference --metrics   print every metric, as Markdown\n"
	"       kvtierd --version\n\n"
	"Without a file it serves engines on 127.0.0.1:9200 with a segment named shared_memory,\n"
	"where a stock LMCache with `remote_url: sagemaker-hyperpod://127.0.0.1:9200` finds it,\n"
	"and lists, erases and metrics on 127.0.0.1:9201. Objects are then in memory only; a\n"
	"file adds local disks and Redis as lower tiers:\n\n"
	"  segment: {size: 64GiB}\n"
	"  cache:\n"
	"    nvme: {path: /var/lib/kvtierd, capacity: 1TiB}\n"
	"    l2: {url: redis://10.0.0.5:6379}\n\n"
	"  curl -X PUT --data-binary @FILE http://127.0.0.1:9200/v1/kv/BUCKET/KEY\n"
	"  curl -X POST 'http://127.0.0.1:9200/v1/kv/BUCKET/KEY/leases?timeout_ms=1000&ttl_s=30'\n"
	"  curl -X POST http://127.0.0.1:9200/v1/leases/ID/release\n"
	"  curl http://127.0.0.1:9201/v1/buckets\n"
	"  curl http://127.0.0.1:9201/v1/kv/BUCKET?limit=100\n"
	"  curl -X DELETE http://127.0.0.1:9201/v1/kv/BUCKET/KEY\n"
	"      (here, on disk and in Redis; engines keep what is in their own memory until they\n"
	"      evict it; `kvtier erase` of a tenant or of all reaches them, too)\n"
	"  curl http://127.0.0.1:9201/metrics\n"
	"  curl http://127.0.0.1:9201/trace | kvtier trace --miss -\n\n"
	"Exit status: 0 fine, 1 mistakes in the configuration, 2 wrong command line, 3 could not "
	"run.\n";

static int wrong(const char *what)
{
	fprintf(stderr, "kvtierd: %s; try `kvtierd --help`\n", what);
	return EXIT_USAGE;
}

/* Prints mistakes on standard error. */
static int read_config(const char *path, struct kvt_daemon_config *config)
{
	char why[KVT_READ_FILE_WHY], *report = NULL, *text;
	enum kvt_status status;
	size_t len = 0;

	text = kvt_read_file(path, (size_t)1 << 20, &len, why);
	if (text == NULL) {
		fprintf(stderr, "kvtierd: %s: %s\n", path, why);
		return EXIT_CANNOT;
	}
	status = kvt_daemon_config_read(config, path, text, len, &report);
	if (report != NULL)
		fputs(report, stderr);
	kvt_text_free(report);
	free(text);
	return status == KVT_OK ? EXIT_FINE : status == KVT_EINVAL ? EXIT_MISTAKES : EXIT_CANNOT;
}

static int check(const char *path)
{
	struct kvt_daemon_config config;
	char why[KVT_REASON_BYTES];
	uint64_t bytes;
	int status;

	kvt_daemon_config_init(&config);
	status = read_config(path, &config);
	if (status != EXIT_CANNOT) {
		bytes = kvt_daemon_segment_bytes(&config, why);
		printf("# segment: %llu bytes, %s\n", (unsigned long long)bytes, why);
		kvt_print_l2(&config.cache);
		kvt_daemon_config_print(&config, stdout);
		if (kvt_daemon_check(&config, bytes) != 0 || bytes == 0)
			status = EXIT_MISTAKES;
	}
	kvt_daemon_config_finish(&config);
	return status;
}

static int serve(const char *path)
{
	struct kvt_daemon_config config;
	int status = EXIT_FINE;

	kvt_daemon_config_init(&config);
	if (path != NULL)
		status = read_config(path, &config);
	if (status == EXIT_MISTAKES)
		fputs("kvtierd: not started: the configuration has mistakes\n", stderr);
	if (status == EXIT_FINE && !kvt_daemon_run(&config))
		status = EXIT_CANNOT;
	kvt_daemon_config_finish(&config);
	return status;
}

static int reference(int argc, char **argv)
{
	if (argc == 2)
		kvt_daemon_reference(stdout);
	else if (argc == 3 && strcmp(argv[2], "--example") == 0)
		kvt_daemon_example(stdout);
	else if (argc == 3 && strcmp(argv[2], "--metrics") == 0)
		kvt_daemon_metrics_reference(stdout);
	else
		return wrong("`reference` takes --example or --metrics");
	return EXIT_FINE;
}

static int run(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";

	if (argc == 1)
		return serve(NULL);
	if (strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0 || strcmp(verb, "help") == 0) {
		fputs(help, stdout);
		return EXIT_FINE;
	}
	if (strcmp(verb, "--version") == 0) {
		printf("kvtierd %s\n", KVW_VERSION);
		return EXIT_FINE;
	}
	if (strcmp(verb, "-c") == 0 || strcmp(verb, "--config") == 0)
		return argc == 3 ? serve(argv[2]) : wrong("`-c` needs a file, and nothing else");
	if (strcmp(verb, "check") == 0)
		return argc == 3 ? check(argv[2]) : wrong("`check` needs a file, or - for stdin");
	if (strcmp(verb, "reference") == 0)
		return reference(argc, argv);
	fprintf(stderr, "kvtierd: no verb or option `%s`; try `kvtierd --help`\n", verb);
	return EXIT_USAGE;
}

/* A failed write to standard output must not pass for a complete one. */
int main(int argc, char **argv)
{
	int status = run(argc, argv);

	return !kvw_standard_out_whole("kvtierd") && status == EXIT_FINE ? EXIT_CANNOT : status;
}
