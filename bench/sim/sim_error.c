/*
 * sim_error.c - composes and sends errors.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bench/sim/sim_error.h"
#include "bench/sim/sim_http.h"

void kvb_error_set(struct kvb_error *error, int status, const char *type, const char *param,
	const char *format, ...)
{
	va_list args;

	error->status = status;
	error->type = type;
	snprintf(error->param, sizeof(error->param), "%s", param);
	va_start(args, format);
	vsnprintf(error->message, sizeof(error->message), format, args);
	va_end(args);
}

void kvb_error_missing(struct kvb_error *error, const char *field, unsigned keys)
{
	char where[64];

	snprintf(where, sizeof(where), "body.%s", field);
	kvb_error_set(error, 400, "Bad Request", where,
		"1 validation error:\n  {'type': 'missing', 'loc': '%s', 'msg': 'Field required', "
		"'input': '<dict of %u items>'}",
		where, keys);
}

void kvb_error_type(struct kvb_error *error, const char *field, const char *expected)
{
	char where[64];

	snprintf(where, sizeof(where), "body.%s", field);
	kvb_error_set(error, 400, "Bad Request", where,
		"1 validation error:\n  {'type': '%s_type', 'loc': '%s', 'msg': 'Input should be a "
		"valid %s'}",
		expected, where, expected);
}

void kvb_error_send(struct kvb_conn *conn, const struct kvb_error *error, bool anthropic)
{
	struct kvb_reply reply = {.status = error->status, .content_type = "application/json"};
	struct kvb_buf body = {0};

	if (anthropic)
		kvb_buf_printf(&body,
			"{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", error->type);
	else
		kvb_buf_text(&body, "{\"error\":{\"message\":");
	kvb_buf_json(&body, error->message, strlen(error->message));
	if (anthropic) {
		kvb_buf_text(&body, "}}");
	} else {
		kvb_buf_printf(&body, ",\"type\":\"%s\",\"param\":", error->type);
		if (error->param[0] == '\0')
			kvb_buf_text(&body, "null");
		else
			kvb_buf_json(&body, error->param, strlen(error->param));
		kvb_buf_printf(&body, ",\"code\":%d}}", error->status);
	}
	kvb_http_reply(conn, &reply, body.data, body.len);
	kvb_buf_finish(&body);
}
