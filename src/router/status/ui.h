/*
 * ui.h - the page /ui: ui.html with ui.css and ui.js in it, made by embed_ui.py. Private to
 * src/router/status.
 */
#ifndef KVW_STATUS_UI_H
#define KVW_STATUS_UI_H

#include <stddef.h>

extern const char kvw_ui[]; /* kvw_ui_len bytes; no NUL behind them */
extern const size_t kvw_ui_len;
extern const char
	kvw_ui_policy[]; /* Content-Security-Policy, with the hashes of style and script */

#endif
