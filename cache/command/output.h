/*
 * output.h - JSON that verbs print: a list with an object for each store.
 */
#ifndef KVT_COMMAND_OUTPUT_H
#define KVT_COMMAND_OUTPUT_H

#include <jansson.h>

/* A text that may hold any byte, such as a path: what is no UTF-8 is U+FFFD. NULL: no memory. */
json_t *kvt_json_any_text(const char *text);

/* Takes one (NULL: there was no memory for it). Returns the exit status: it is in the list, or that is reported. */
int kvt_json_add_take(const char *verb, json_t *list, json_t *one);

/* Prints the list, which it takes, with a line's end. Returns `result`, or that this failed, which is reported. */
int kvt_json_print_take(const char *verb, json_t *list, int result);

#endif
