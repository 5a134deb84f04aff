/*
 * answer.c - writes the bodies of answers.
 */
#include <stdarg.h>
#include <string.h>

#include "daemon/server_parts.h"

#define ERROR_BYTES 512

void kvt_conn_answer_json(struct kvt_conn *conn, int status, const char *text, size_t len)
{
	kvw_conn_answer(&conn->base,
		&(struct kvw_http_answer){
			.status = status, .type = "application/json", .body = {text, len}});
}

void kvt_json_text(FILE *out, const char *text, size_t len)
{
	fputc('"', out);
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else if (c < 0x20 || c == 0x7F)
			fprintf(out, "\\u%04x", c);
		else
			fputc(c, out);
	}
	fputc('"', out);
}

void kvt_conn_refuse(struct kvt_conn *conn, int status, const char *extra, const char *format, ...)
{
	char text[ERROR_BYTES], body[2 * ERROR_BYTES];
	size_t used;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	used = (size_t)snprintf(body, sizeof(body), "{\"error\":\"");
	for (const char *c = text; *c != '\0' && used + 8 < sizeof(body); c++) {
		if (*c == '"' || *c == '\\')
			body[used++] = '\\';
		body[used++] = (unsigned char)*c < 0x20 ? ' ' : *c;
	}
	memcpy(body + used, "\"}", 2);
	kvw_conn_answer(&conn->base, &(struct kvw_http_answer){.status = status,
					     .type = "application/json",
					     .body = {body, used + 2},
					     .extra = kvw_slice_of(extra)});
}

void kvt_conn_fail(struct kvt_conn *conn, const char *what, const char *why)
{
	kvt_meter_add(&kvt_conn_loop(conn)->meters, KVT_COUNT_REFUSED_ERROR, 1);
	kvt_conn_refuse(conn, 503, KVT_SOON, "%s%s", what, why);
}
