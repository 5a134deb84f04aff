/*
 * status.h - what is true now, as one JSON document: GET /status of the admin address; and /ui, the
 * page that shows it. `kvway top` shows the same document.
 *
 * Threads: kvw_status_create and _destroy by the main thread, before the control thread starts and
 * after it has ended; the rest is called by the control thread through struct kvw_admin_pages.
 * A document is made on demand, at most twice a second: further questions get the same one.
 */
#ifndef KVW_STATUS_H
#define KVW_STATUS_H

#include "admin/admin.h"
#include "kvway/err.h"

struct kvw_status;

enum kvw_err kvw_status_create(struct kvw_status **out) KVW_MUST_CHECK;
void kvw_status_destroy(struct kvw_status *status); /* NULL is allowed */
/* Returns the paths that it serves; they borrow it. */
struct kvw_admin_pages kvw_status_pages(struct kvw_status *status);

#endif
