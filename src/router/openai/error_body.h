/*
 * error_body.h - writes error answers in the form that the path's clients expect.
 *
 * OpenAI and vLLM: {"error":{"message","type","param","code"}}; Anthropic paths:
 * {"type":"error","error":{"type","message"}}.
 */
#ifndef KVW_ERROR_BODY_H
#define KVW_ERROR_BODY_H

#include "kvway/route_request.h"

/*
 * Writes the JSON body for `status` into buf and returns its length (always < size, cut at a whole
 * message character if it must be). type and param may be NULL: type then follows from status as
 * vLLM names it (BadRequestError, NotFoundError, ServiceUnavailableError, ...), param is null. On
 * Anthropic's paths the type follows from status alone and is one of Anthropic's
 * (invalid_request_error, overloaded_error, ...). message, type and param are escaped here; bytes
 * that are not UTF-8 become `?`. buf is terminated with NUL. Returns 0 if not even the frame fits:
 * 256 bytes are always enough.
 */
/* Does the same with a word as the error's code (NULL: the status). */
size_t kvw_error_body_code(char *buf, size_t size, enum kvw_api api, int status, const char *type,
	const char *param, const char *code, const char *message);
size_t kvw_error_body(char *buf, size_t size, enum kvw_api api, int status, const char *type,
	const char *param, const char *message);

/*
 * Writes a JSON error body, of kvway or of a worker, as the event that ends a stream of that API:
 * an SDK raises the same exception for the event as for the body. Returns its length; 0: the body
 * is not a JSON object, or there is no room.
 */
size_t kvw_error_event(char *buf, size_t size, enum kvw_api api, const char *body, size_t len);

#endif
