/* Two accounts and a transfer between them, in C.
 *
 *     cc bank.c $(pkg-config --cflags --libs holdfast) && ./a.out bank.pool
 */
#include <holdfast.h>

#include <stdio.h>
#include <stdlib.h>

struct account {
    int64_t balance;
    holdfast_ptr next;
};

static void expect(holdfast_code code, const char *what)
{
    if (code != HOLDFAST_OK) {
        fprintf(stderr, "%s: %s\n", what, holdfast_message());
        exit(1);
    }
}

/* Makes the accounts: called again if need be, so it keeps nothing outside of the pool. */
static int make_accounts(holdfast_tx tx, void *argument)
{
    const uint32_t type = *(const uint32_t *)argument;
    holdfast_ptr first, second;
    void *address;
    if (holdfast_tx_alloc(tx, sizeof(struct account), type, &second, &address) != HOLDFAST_OK)
        return 1;
    *(struct account *)address = (struct account){0, 0};
    if (holdfast_tx_alloc(tx, sizeof(struct account), type, &first, &address) != HOLDFAST_OK)
        return 1;
    *(struct account *)address = (struct account){100, second};
    return holdfast_tx_set_root(tx, first) != HOLDFAST_OK;
}

/* The same by begin and commit: a commit may ask for the work to be done again. */
static holdfast_code transfer(holdfast_pool pool, uint32_t type, int64_t amount)
{
    holdfast_tx tx;
    holdfast_ptr root;
    holdfast_code code = holdfast_tx_begin(pool, &tx);
    if (code != HOLDFAST_OK)
        return code;
    do {
        void *from, *to;
        /* What fails here is told by the commit, which undoes everything then. */
        if (holdfast_tx_root(tx, &root) == HOLDFAST_OK &&
            holdfast_tx_open(tx, root, type, &from, NULL) == HOLDFAST_OK &&
            holdfast_tx_open(tx, ((struct account *)from)->next, type, &to, NULL) == HOLDFAST_OK) {
            ((struct account *)from)->balance -= amount;
            ((struct account *)to)->balance += amount;
        }
        code = holdfast_tx_commit(tx);
    } while (code == HOLDFAST_AGAIN);
    return code;
}

int main(int count, char **arguments)
{
    const char *path = count > 1 ? arguments[1] : "bank.pool";
    uint32_t type = holdfast_type("bank.account", 1);
    holdfast_pool pool;
    holdfast_ptr root;
    struct account first, second;

    expect(holdfast_pool_create(path, NULL, &pool), "create");
    expect(holdfast_run(pool, make_accounts, &type), "make accounts");
    expect(transfer(pool, type, 30), "transfer");
    expect(holdfast_root(pool, &root), "root");
    expect(holdfast_read(pool, root, 0, &first, sizeof first), "read");
    expect(holdfast_read(pool, first.next, 0, &second, sizeof second), "read");
    printf("%lld and %lld\n", (long long)first.balance, (long long)second.balance);
    expect(holdfast_pool_close(pool), "close");
    return first.balance == 70 && second.balance == 30 ? 0 : 1;
}
