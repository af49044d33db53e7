/* Berkeley DB through plain functions: its own are fields of a structure of many hundred bytes, whose layout
 * only its header defines. */

#include <db.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The page size of a hash table; a page is a bucket. */
static const uint32_t page_bytes = 4096;

/* The fill factor at which a bucket fills its page, by the formula of its guide. */
static uint32_t records_a_bucket(uint32_t record_bytes) { return (page_bytes - 32) / (record_bytes + 8); }

/* Sets the expected number of records, and the records per bucket: without the latter it ignores the former. */
static int set_size(DB *db, uint32_t records, uint32_t record_bytes) {
    int error = db->set_pagesize(db, page_bytes);
    if (error == 0) error = db->set_h_ffactor(db, records_a_bucket(record_bytes));
    return error == 0 ? db->set_h_nelem(db, records) : error;
}

/* Opens or creates a file; returns NULL, with the reason in `error`, if that fails. */
DB *atoll_berkeley_open(const char *path, int is_tree, uint64_t cache_bytes, uint32_t records, uint32_t record_bytes,
                        int *error) {
    DB *db = NULL;
    *error = db_create(&db, NULL, 0);
    if (*error != 0) return NULL;
    *error = db->set_cachesize(db, (uint32_t)(cache_bytes >> 30), (uint32_t)(cache_bytes & ((1u << 30) - 1)), 1);
    if (*error == 0 && !is_tree) *error = set_size(db, records, record_bytes);
    if (*error == 0) *error = db->open(db, NULL, path, NULL, is_tree ? DB_BTREE : DB_HASH, DB_CREATE, 0600);
    if (*error == 0) return db;
    db->close(db, DB_NOSYNC);
    return NULL;
}

static DBT bytes_of(const void *bytes, uint32_t len) {
    DBT item;
    memset(&item, 0, sizeof item);
    item.data = (void *)bytes;
    item.size = len;
    return item;
}

int atoll_berkeley_put(DB *db, const void *key, uint32_t key_len, const void *value, uint32_t value_len) {
    DBT k = bytes_of(key, key_len), v = bytes_of(value, value_len);
    return db->put(db, NULL, &k, &v, 0);
}

/* Copies the value into `target`; returns its length, -1 if there is none, or -2 with the reason in `error`. */
int64_t atoll_berkeley_get(DB *db, const void *key, uint32_t key_len, void *target, uint32_t room, int *error) {
    DBT k = bytes_of(key, key_len), v = bytes_of(target, 0);
    v.ulen = room;
    v.flags = DB_DBT_USERMEM;
    *error = db->get(db, NULL, &k, &v, 0);
    if (*error == DB_NOTFOUND) return -1;
    return *error == 0 ? (int64_t)v.size : -2;
}

int atoll_berkeley_remove(DB *db, const void *key, uint32_t key_len) {
    DBT k = bytes_of(key, key_len);
    return db->del(db, NULL, &k, 0);
}

/* The number of buckets of a hash table; -1 if it cannot be determined. */
int64_t atoll_berkeley_buckets(DB *db) {
    DB_HASH_STAT *stat = NULL;
    if (db->stat(db, NULL, &stat, DB_FAST_STAT) != 0) return -1;
    int64_t buckets = stat->hash_buckets;
    free(stat);
    return buckets;
}

int atoll_berkeley_sync(DB *db) { return db->sync(db, 0); }

int atoll_berkeley_close(DB *db) { return db->close(db, 0); }
