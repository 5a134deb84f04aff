/*
 * sim_error.h - makes errors in the forms that vLLM has.
 */
#ifndef KVB_SIM_ERROR_H
#define KVB_SIM_ERROR_H

#include <stdbool.h>

struct kvb_conn;

/* The error of a request, as vLLM would report it. */
struct kvb_error {
	int status;
	const char *type; /* static: "BadRequestError", "NotFoundError", "Bad Request", ... */
	char param[64];   /* "" is null */
	char message[512];
};

void kvb_error_set(struct kvb_error *error, int status, const char *type, const char *param,
	const char *format, ...) __attribute__((format(printf, 5, 6)));
/* A field of the request is missing; `keys` is the number of fields it has. */
void kvb_error_missing(struct kvb_error *error, const char *field, unsigned keys);
/* A field has a value of the wrong type. */
void kvb_error_type(struct kvb_error *error, const char *field, const char *expected);
void kvb_error_send(struct kvb_conn *conn, const struct kvb_error *error, bool anthropic);

#endif
