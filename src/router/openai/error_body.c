/*
 * error_body.c - writes the bodies of error answers as vLLM does, for each kind of client.
 */
#include <stdio.h>
#include <string.h>

#include "openai/api_path.h"
#include "openai/error_body.h"

/* Output that stops growing when it is full; the last byte is kept for the terminator. */
struct out {
	char *data;
	size_t len, size;
};

static bool out_raw(struct out *out, const char *data, size_t len)
{
	if (out->size - 1 - out->len < len)
		return false;
	memcpy(out->data + out->len, data, len);
	out->len += len;
	return true;
}

static bool out_text(struct out *out, const char *text)
{
	return out_raw(out, text, strlen(text));
}

/* Returns the length of the valid UTF-8 character at p; 0: it is not valid. */
static size_t character(const unsigned char *p)
{
	static const struct {
		unsigned char mask, lead, len;
		uint32_t least;
	} forms[] = {{0x80, 0x00, 1, 0}, {0xe0, 0xc0, 2, 0x80}, {0xf0, 0xe0, 3, 0x800},
		{0xf8, 0xf0, 4, 0x10000}};

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		uint32_t code;

		if ((p[0] & forms[i].mask) != forms[i].lead)
			continue;
		code = p[0] & (unsigned char)~forms[i].mask;
		for (size_t k = 1; k < forms[i].len; k++) {
			if ((p[k] & 0xc0) != 0x80) /* a NUL ends the character here, too */
				return 0;
			code = code << 6 | (p[k] & 0x3f);
		}
		if (code < forms[i].least || code > 0x10ffff || (code & ~UINT32_C(0x7ff)) == 0xd800)
			return 0;
		return forms[i].len;
	}
	return 0;
}

/* Writes text between quotes, as much as leaves `keep` bytes free. Bytes that are not UTF-8 become
 * `?`. */
static void out_escaped(struct out *out, const char *text, size_t keep)
{
	const unsigned char *p = (const unsigned char *)text;

	while (*p != '\0') {
		char spelt[8];
		size_t used = character(p), len = used;

		if (used == 0) {
			spelt[0] = '?';
			used = len = 1;
		} else if (*p == '"' || *p == '\\') {
			spelt[0] = '\\';
			spelt[1] = (char)*p;
			len = 2;
		} else if (*p == '\n') {
			memcpy(spelt, "\\n", 2);
			len = 2;
		} else if (*p < 0x20) {
			len = (size_t)snprintf(spelt, sizeof(spelt), "\\u%04x", *p);
		} else {
			memcpy(spelt, p, used);
		}
		if (out->size - 1 - out->len < len + keep)
			return;
		out_raw(out, spelt, len);
		p += used;
	}
}

static const char *type_of(int status)
{
	switch (status) {
	case 400:
		return "BadRequestError";
	case 401:
		return "AuthenticationError";
	case 403:
		return "PermissionDeniedError";
	case 404:
		return "NotFoundError";
	case 405:
		return "MethodNotAllowedError";
	case 408:
		return "RequestTimeoutError";
	case 413:
		return "RequestTooLargeError";
	case 429:
		return "RateLimitError";
	case 431:
		return "RequestHeaderFieldsTooLargeError";
	case 500:
		return "InternalServerError";
	case 501:
		return "NotImplementedError";
	case 502:
		return "BadGatewayError";
	case 503:
		return "ServiceUnavailableError";
	case 504:
		return "GatewayTimeoutError";
	default:
		return status < 500 ? "BadRequestError" : "InternalServerError";
	}
}

/* Returns the type name in Anthropic's API and vLLM since 0.33. Other 4xx are
 * invalid_request_error. */
static const char *anthropic_type_of(int status)
{
	switch (status) {
	case 401:
		return "authentication_error";
	case 403:
		return "permission_error";
	case 404:
		return "not_found_error";
	case 413:
		return "request_too_large";
	case 429:
		return "rate_limit_error";
	case 503:
	case 529:
		return "overloaded_error";
	case 504:
		return "timeout_error";
	default:
		return status < 500 ? "invalid_request_error" : "api_error";
	}
}

static bool write_anthropic(struct out *out, const char *type, const char *message)
{
	if (!out_text(out, "{\"type\":\"error\",\"error\":{\"type\":\""))
		return false;
	out_escaped(out, type, 32);
	if (!out_text(out, "\",\"message\":\""))
		return false;
	out_escaped(out, message, 3);
	return out_text(out, "\"}}");
}

static bool write_openai(struct out *out, int status, const char *type, const char *param,
	const char *word, const char *message)
{
	char tail[320];
	struct out rest = {tail, 0, sizeof(tail)};
	char code[64];

	if (word != NULL)
		snprintf(code, sizeof(code), ",\"code\":\"%.40s\"}}", word);
	else
		snprintf(code, sizeof(code), ",\"code\":%d}}", status);
	out_text(&rest, "\",\"type\":\"");
	out_escaped(&rest, type, 160);
	out_text(&rest, "\",\"param\":");
	if (param == NULL) {
		out_text(&rest, "null");
	} else {
		out_text(&rest, "\"");
		out_escaped(&rest, param, 1 + strlen(code));
		out_text(&rest, "\"");
	}
	out_text(&rest, code);
	if (!out_text(out, "{\"error\":{\"message\":\"") || out->size - 1 - out->len < rest.len)
		return false;
	out_escaped(out, message, rest.len);
	return out_raw(out, rest.data, rest.len);
}

size_t kvw_error_body(char *buf, size_t size, enum kvw_api api, int status, const char *type,
	const char *param, const char *message)
{
	return kvw_error_body_code(buf, size, api, status, type, param, NULL, message);
}

size_t kvw_error_body_code(char *buf, size_t size, enum kvw_api api, int status, const char *type,
	const char *param, const char *code, const char *message)
{
	struct out out = {buf, 0, size};
	bool done;

	if (size == 0)
		return 0;
	if (message == NULL)
		message = "";
	if (kvw_api_anthropic(api))
		done = write_anthropic(&out, anthropic_type_of(status), message);
	else
		done = write_openai(
			&out, status, type == NULL ? type_of(status) : type, param, code, message);
	if (!done)
		out.len = 0; /* there is no room even without a message */
	buf[out.len] = '\0';
	return out.len;
}

/* Copies JSON in one line, since a line end between its tokens would end the event's line. */
static bool out_line(struct out *out, const char *data, size_t len)
{
	size_t from = out->len;

	if (!out_raw(out, data, len))
		return false;
	for (; from < out->len; from++)
		if (out->data[from] == '\n' || out->data[from] == '\r')
			out->data[from] = ' ';
	return true;
}

size_t kvw_error_event(char *buf, size_t size, enum kvw_api api, const char *body, size_t len)
{
	struct out out = {buf, 0, size};
	const char *begin = "data: {", *end = "\n\ndata: [DONE]\n\n";

	if (size == 0 || len < 2 || body[0] != '{')
		return 0;
	if (kvw_api_anthropic(api)) {
		begin = "event: error\ndata: {";
		end = "\n\n";
	} else if (api == KVW_API_RESPONSES) {
		begin = "event: error\ndata: {\"type\":\"error\",\"sequence_number\":0,";
		end = "\n\n";
	}
	if (!out_text(&out, begin) || !out_line(&out, body + 1, len - 1) || !out_text(&out, end))
		return 0;
	return out.len;
}
