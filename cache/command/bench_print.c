/*
 * bench_print.c - prints the figures of `kvtier bench`, as a table or as JSON.
 */
#include <inttypes.h>
#include <jansson.h>

#include "command/bench.h"
#include "command/format.h"

static void print_rate(const struct kvt_bench *b, const char *what, double rate, FILE *out)
{
	char text[KVT_FORMAT_BYTES];

	if (rate > 0)
		fprintf(out, "  %-34s %12s %12.1f us\n", what, kvt_format_rate(text, rate),
			(double)b->chunk / rate * 1e6);
	else
		fprintf(out, "  %-34s %12s\n", what, "failed");
}

static void print_time(const char *what, double seconds, FILE *out)
{
	if (seconds > 0)
		fprintf(out, "  %-34s %12s %12.2f us\n", what, "", seconds * 1e6);
	else
		fprintf(out, "  %-34s %12s\n", what, "failed");
}

void kvt_bench_print(const struct kvt_bench *b, FILE *out)
{
	char size[KVT_FORMAT_BYTES];

	fprintf(out, "chunks of %s, one thread\n\n  %-34s %12s %15s\n",
		kvt_format_size(size, (double)b->chunk), "", "rate", "per chunk");
	fprintf(out, "memory (%s)\n", b->l1_mode);
	print_rate(b, "copy of plain memory", b->copy_rate, out);
	print_rate(b, "put, with checksum", b->put_rate, out);
	print_time("get, a lease", b->get_s, out);
	print_rate(b, "get, every byte checked",
		b->verified_s > 0 ? (double)b->chunk / b->verified_s : 0, out);
	print_time("lookup of a chain of 1,000", b->lookup_s, out);
	if (b->fragments) {
		fputs("fragments (bfloat16, heads of 128)\n", out);
		print_rate(b, "store", b->fragment_store_rate, out);
		print_rate(b, "load, where they stood", b->fragment_load_rate, out);
		print_rate(b, "load elsewhere, keys turned", b->fragment_turn_rate, out);
	}
	if (b->path == NULL) {
		fputs("nvme: --path FOLDER measures a disk\n", out);
		return;
	}
	fprintf(out, "nvme (%s)%s%s\n", b->nvme_mode, b->nvme_reason[0] != '\0' ? ": " : "",
		b->nvme_reason);
	print_rate(b, "write, until durable", b->write_rate, out);
	print_rate(b, "read, every byte checked", b->read_rate, out);
}

bool kvt_bench_print_json(const struct kvt_bench *b, FILE *out)
{
	json_t *root = json_pack("{s:I, s:s, s:f, s:f, s:f, s:f, s:f}", "chunk_bytes",
		(json_int_t)b->chunk, "l1_mode", b->l1_mode, "copy_bytes_per_second", b->copy_rate,
		"l1_put_bytes_per_second", b->put_rate, "l1_get_seconds", b->get_s,
		"l1_get_verified_seconds", b->verified_s, "lookup_1000_seconds", b->lookup_s);
	bool done = root != NULL;

	if (done && b->path != NULL)
		done = json_object_update_new(
			       root, json_pack("{s:s, s:s, s:f, s:f}", "nvme_mode", b->nvme_mode,
					     "nvme_reason", b->nvme_reason,
					     "nvme_write_bytes_per_second", b->write_rate,
					     "nvme_read_bytes_per_second", b->read_rate)) == 0;
	if (done && b->fragments)
		done = json_object_update_new(root, json_pack("{s:f, s:f, s:f}", "fragment_store_bytes_per_second",
							    b->fragment_store_rate, "fragment_load_bytes_per_second",
							    b->fragment_load_rate, "fragment_turn_bytes_per_second",
							    b->fragment_turn_rate)) == 0;
	done = done && json_dumpf(root, out, JSON_INDENT(2)) == 0;
	if (done)
		fputc('\n', out);
	json_decref(root);
	return done;
}
