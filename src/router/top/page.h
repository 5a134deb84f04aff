/*
 * page.h - the document of GET /status as text. Text from the network is printed without control
 * characters.
 */
#ifndef KVW_TOP_PAGE_H
#define KVW_TOP_PAGE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* How a screen is drawn. */
struct kvw_top_look {
	bool color;
	int width; /* columns, at which sentences are folded; 0: none is */
	int height; /* lines; what does not fit is left out, and said; 0: all is shown */
};

/* Prints the document. address: of the router. False: it is not a document of /status. */
bool kvw_top_print(
	const json_t *status, const char *address, const struct kvw_top_look *look, FILE *out);
/* Prints its problems: what, why and what to do. Returns how many lines. */
int kvw_top_print_problems(const json_t *problems, const struct kvw_top_look *look, FILE *out);
/* Returns whether a problem has the severity error. */
bool kvw_top_has_errors(const json_t *status);

#endif
