/*
 * output.h - JSON output of verbs: a list with an object for each store.
 */
#ifndef KVT_COMMAND_OUTPUT_H
#define KVT_COMMAND_OUTPUT_H

#include <jansson.h>

/* Makes a text from any bytes, such as a path: invalid UTF-8 becomes U+FFFD. NULL: no memory. */
json_t *kvt_json_any_text(const char *text);

/* Adds an object to the list, and takes it over (NULL: there was no memory for it). Returns the
 * exit status: success, or a failure, which is reported. */
int kvt_json_add_take(const char *verb, json_t *list, json_t *one);

/* Prints the list, which it takes over, and a line end. Returns `result`, or a failure, which is
 * reported. */
int kvt_json_print_take(const char *verb, json_t *list, int result);

#endif
