"""The 22 questions of TPC-H as views, in our own words.

A view has no order and no first rows: readers sort and cut. Three of them (8, 14 and 17) divide
exact numbers, which the databases do differently, so the views have a dialect: either will do.
"""

#: Number of the question → what it asks, and the view.
VIEWS: dict[int, tuple[str, str]] = {
    1: (
        "sums per state of the lines shipped so far",
        """
        SELECT l_returnflag, l_linestatus, SUM(l_quantity) AS pieces, SUM(l_extendedprice) AS list,
               SUM(l_extendedprice * (1 - l_discount)) AS paid,
               SUM(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS charged,
               AVG(l_quantity), AVG(l_extendedprice), AVG(l_discount), COUNT(*)
        FROM sales.lineitem WHERE l_shipdate < DATE '1998-09-03'
        GROUP BY l_returnflag, l_linestatus""",
    ),
    2: (
        "the cheapest European suppliers of each tin of size 15",
        """
        WITH offers(partkey, suppkey, cost, nation) AS (
            SELECT ps_partkey, ps_suppkey, ps_supplycost, n_name
            FROM stock.partsupp
            JOIN stock.supplier ON ps_suppkey = s_suppkey
            JOIN geo.nation ON s_nationkey = n_nationkey
            JOIN geo.region ON n_regionkey = r_regionkey AND r_name = 'EUROPE')
        SELECT s.s_acctbal, s.s_name, nation, p.p_partkey, p.p_mfgr, s.s_address, s.s_phone
        FROM stock.part p
        JOIN offers ON partkey = p.p_partkey
        JOIN stock.supplier s ON s.s_suppkey = suppkey
        WHERE p.p_size = 15 AND p.p_type LIKE '%TIN'
        AND cost = (SELECT MIN(o.cost) FROM offers o WHERE o.partkey = p.p_partkey)""",
    ),
    3: (
        "the open value of orders of one segment",
        """
        SELECT o_orderkey, SUM(l_extendedprice * (1 - l_discount)) AS open, o_orderdate,
               o_shippriority
        FROM sales.customer
        JOIN sales.orders ON o_custkey = c_custkey AND o_orderdate < DATE '1995-03-15'
        JOIN sales.lineitem ON l_orderkey = o_orderkey AND l_shipdate > DATE '1995-03-15'
        WHERE c_mktsegment = 'BUILDING'
        GROUP BY o_orderkey, o_orderdate, o_shippriority""",
    ),
    4: (
        "orders of a quarter with a late line, per priority",
        """
        SELECT o_orderpriority, COUNT(*)
        FROM sales.orders SEMI JOIN sales.lineitem
          ON l_orderkey = o_orderkey AND l_receiptdate > l_commitdate
        WHERE EXTRACT(year FROM o_orderdate) = 1993 AND EXTRACT(quarter FROM o_orderdate) = 3
        GROUP BY o_orderpriority""",
    ),
    5: (
        "sales within each Asian nation",
        """
        SELECT n_name, SUM(l_extendedprice * (1 - l_discount)) AS sold
        FROM sales.lineitem
        JOIN sales.orders ON l_orderkey = o_orderkey
        JOIN sales.customer ON o_custkey = c_custkey
        JOIN stock.supplier ON l_suppkey = s_suppkey AND s_nationkey = c_nationkey
        JOIN geo.nation ON n_nationkey = s_nationkey
        JOIN geo.region ON r_regionkey = n_regionkey
        WHERE r_name = 'ASIA' AND EXTRACT(year FROM o_orderdate) = 1994
        GROUP BY n_name""",
    ),
    6: (
        "what small discounts cost in a year",
        """
        SELECT SUM(l_extendedprice * l_discount) AS given
        FROM sales.lineitem
        WHERE l_quantity < 24 AND l_discount IN (0.05, 0.06, 0.07)
        AND EXTRACT(year FROM l_shipdate) = 1994""",
    ),
    7: (
        "trade between France and Germany per year",
        """
        SELECT here.n_name AS supplier, there.n_name AS customer,
               EXTRACT(year FROM l_shipdate) AS year,
               SUM(l_extendedprice * (1 - l_discount)) AS sold
        FROM sales.lineitem
        JOIN sales.orders ON o_orderkey = l_orderkey
        JOIN sales.customer ON c_custkey = o_custkey
        JOIN stock.supplier ON s_suppkey = l_suppkey
        JOIN geo.nation here ON here.n_nationkey = s_nationkey
        JOIN geo.nation there ON there.n_nationkey = c_nationkey
        WHERE (here.n_name, there.n_name) IN (('FRANCE', 'GERMANY'), ('GERMANY', 'FRANCE'))
        AND l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
        GROUP BY here.n_name, there.n_name, EXTRACT(year FROM l_shipdate)""",
    ),
    8: (
        "Brazil's share of American sales of one type, per year",
        """
        WITH sold(year, nation, volume) AS (
            SELECT EXTRACT(year FROM o_orderdate), s.n_name, l_extendedprice * (1 - l_discount)
            FROM stock.part
            JOIN sales.lineitem ON l_partkey = p_partkey
            JOIN sales.orders ON o_orderkey = l_orderkey
            JOIN sales.customer ON c_custkey = o_custkey
            JOIN geo.nation c ON c.n_nationkey = c_nationkey
            JOIN geo.region ON r_regionkey = c.n_regionkey AND r_name = 'AMERICA'
            JOIN stock.supplier ON s_suppkey = l_suppkey
            JOIN geo.nation s ON s.n_nationkey = s_nationkey
            WHERE p_type = 'ECONOMY ANODIZED STEEL'
            AND o_orderdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31')
        SELECT year, SUM(volume) FILTER (WHERE nation = 'BRAZIL') / SUM(volume) AS share
        FROM sold GROUP BY year""",
    ),
    9: (
        "profit with green parts per nation and year",
        """
        SELECT n_name, EXTRACT(year FROM o_orderdate) AS year,
               SUM(l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity) AS profit
        FROM sales.lineitem
        JOIN stock.part ON p_partkey = l_partkey AND STRPOS(p_name, 'green') > 0
        JOIN stock.partsupp ON ps_partkey = l_partkey AND ps_suppkey = l_suppkey
        JOIN stock.supplier ON s_suppkey = l_suppkey
        JOIN geo.nation ON n_nationkey = s_nationkey
        JOIN sales.orders ON o_orderkey = l_orderkey
        GROUP BY n_name, EXTRACT(year FROM o_orderdate)""",
    ),
    10: (
        "what customers sent back in a quarter",
        """
        SELECT c_custkey, c_name, c_acctbal, c_phone, c_address, c_comment, n_name,
               SUM(l_extendedprice * (1 - l_discount)) AS lost
        FROM sales.lineitem
        JOIN sales.orders ON o_orderkey = l_orderkey
        JOIN sales.customer ON c_custkey = o_custkey
        JOIN geo.nation ON n_nationkey = c_nationkey
        WHERE l_returnflag = 'R' AND o_orderdate >= DATE '1993-10-01'
        AND o_orderdate < DATE '1993-10-01' + INTERVAL '3' MONTH
        GROUP BY c_custkey, c_name, c_acctbal, c_phone, c_address, c_comment, n_name""",
    ),
    11: (
        "the German stocks that make up a ten-thousandth of all",
        """
        WITH german(partkey, worth) AS (
            SELECT ps_partkey, ps_supplycost * ps_availqty
            FROM stock.partsupp
            JOIN stock.supplier ON s_suppkey = ps_suppkey
            JOIN geo.nation ON n_nationkey = s_nationkey AND n_name = 'GERMANY')
        SELECT partkey, SUM(worth) AS worth FROM german GROUP BY partkey
        HAVING SUM(worth) * 10000 > (SELECT SUM(g.worth) FROM german g)""",
    ),
    12: (
        "late lines by ship and mail, of urgent and other orders",
        """
        SELECT l_shipmode,
               COUNT(*) FILTER (WHERE o_orderpriority IN ('1-URGENT', '2-HIGH')) AS urgent,
               COUNT(*) FILTER (WHERE o_orderpriority NOT IN ('1-URGENT', '2-HIGH')) AS others
        FROM sales.lineitem JOIN sales.orders ON o_orderkey = l_orderkey
        WHERE l_shipmode IN ('MAIL', 'SHIP') AND EXTRACT(year FROM l_receiptdate) = 1994
        AND l_shipdate < l_commitdate AND l_commitdate < l_receiptdate
        GROUP BY l_shipmode""",
    ),
    13: (
        "how many customers have how many orders",
        """
        SELECT orders, COUNT(*) AS customers
        FROM (SELECT COUNT(o_orderkey) FROM sales.customer LEFT JOIN sales.orders
              ON o_custkey = c_custkey AND NOT o_comment LIKE '%special%requests%'
              GROUP BY c_custkey) AS each(orders)
        GROUP BY orders""",
    ),
    14: (
        "the share of promoted parts in a month's sales",
        """
        SELECT 100 * SUM(l_extendedprice * (1 - l_discount))
                     FILTER (WHERE STARTS_WITH(p_type, 'PROMO'))
               / NULLIF(SUM(l_extendedprice * (1 - l_discount)), 0) AS promoted
        FROM sales.lineitem JOIN stock.part ON p_partkey = l_partkey
        WHERE l_shipdate >= DATE '1995-09-01' AND l_shipdate < DATE '1995-10-01'""",
    ),
    15: (
        "the suppliers that sold most in a quarter",
        """
        WITH sold(suppkey, total) AS (
            SELECT l_suppkey, SUM(l_extendedprice * (1 - l_discount)) FROM sales.lineitem
            WHERE l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-04-01'
            GROUP BY l_suppkey)
        SELECT s_suppkey, s_name, s_address, s_phone, total
        FROM stock.supplier JOIN sold ON suppkey = s_suppkey
        WHERE total = (SELECT MAX(total) FROM sold)""",
    ),
    16: (
        "how many good suppliers each kind of part has",
        """
        SELECT p_brand, p_type, p_size, COUNT(DISTINCT ps_suppkey) AS suppliers
        FROM stock.part JOIN stock.partsupp ON ps_partkey = p_partkey
        WHERE p_brand <> 'Brand#45' AND p_type NOT LIKE 'MEDIUM POLISHED%'
        AND p_size IN (49, 14, 23, 45, 19, 3, 36, 9)
        AND NOT EXISTS (SELECT 1 FROM stock.supplier WHERE s_suppkey = ps_suppkey
                        AND s_comment LIKE '%Customer%Complaints%')
        GROUP BY p_brand, p_type, p_size""",
    ),
    17: (
        "the yearly value of small orders of one kind of part",
        """
        SELECT SUM(l.l_extendedprice) / 7.0 AS yearly
        FROM sales.lineitem l JOIN stock.part ON p_partkey = l.l_partkey
        WHERE p_brand = 'Brand#23' AND p_container = 'MED BOX'
        AND l.l_quantity < 0.2 * (
            SELECT AVG(o.l_quantity) FROM sales.lineitem o WHERE o.l_partkey = p_partkey)""",
    ),
    18: (
        "orders of more than 300 pieces",
        """
        SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, pieces
        FROM (SELECT l_orderkey, SUM(l_quantity) FROM sales.lineitem GROUP BY l_orderkey
              HAVING SUM(l_quantity) > 300) AS large(orderkey, pieces)
        JOIN sales.orders ON o_orderkey = orderkey
        JOIN sales.customer ON c_custkey = o_custkey""",
    ),
    19: (
        "sales of three kinds of parts, delivered by air and in person",
        """
        SELECT SUM(l_extendedprice * (1 - l_discount)) AS sold
        FROM sales.lineitem, stock.part
        WHERE (p_partkey = l_partkey AND p_brand = 'Brand#12' AND p_size BETWEEN 1 AND 5
               AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
               AND l_quantity BETWEEN 1 AND 11 AND l_shipmode IN ('AIR', 'AIR REG')
               AND l_shipinstruct = 'DELIVER IN PERSON')
           OR (p_partkey = l_partkey AND p_brand = 'Brand#23' AND p_size BETWEEN 1 AND 10
               AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
               AND l_quantity BETWEEN 10 AND 20 AND l_shipmode IN ('AIR', 'AIR REG')
               AND l_shipinstruct = 'DELIVER IN PERSON')
           OR (p_partkey = l_partkey AND p_brand = 'Brand#34' AND p_size BETWEEN 1 AND 15
               AND p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
               AND l_quantity BETWEEN 20 AND 30 AND l_shipmode IN ('AIR', 'AIR REG')
               AND l_shipinstruct = 'DELIVER IN PERSON')""",
    ),
    20: (
        "Canadian suppliers with more of a forest part than half of a year's sales",
        """
        SELECT s_name, s_address
        FROM stock.supplier JOIN geo.nation ON n_nationkey = s_nationkey AND n_name = 'CANADA'
        WHERE s_suppkey IN (
            SELECT ps_suppkey FROM stock.partsupp
            WHERE ps_partkey IN (SELECT p_partkey FROM stock.part WHERE p_name LIKE 'forest%')
            AND 2 * ps_availqty > (
                SELECT SUM(l_quantity) FROM sales.lineitem
                WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey
                AND l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'))""",
    ),
    21: (
        "how often a Saudi supplier alone kept an order waiting",
        """
        SELECT s_name, COUNT(*) AS times
        FROM stock.supplier
        JOIN geo.nation ON n_nationkey = s_nationkey AND n_name = 'SAUDI ARABIA'
        JOIN sales.lineitem late ON late.l_suppkey = s_suppkey
        JOIN sales.orders ON o_orderkey = late.l_orderkey AND o_orderstatus = 'F'
        WHERE late.l_receiptdate > late.l_commitdate
        AND EXISTS (SELECT 1 FROM sales.lineitem o
                    WHERE o.l_orderkey = late.l_orderkey AND o.l_suppkey <> late.l_suppkey)
        AND NOT EXISTS (SELECT 1 FROM sales.lineitem o
                        WHERE o.l_orderkey = late.l_orderkey AND o.l_suppkey <> late.l_suppkey
                        AND o.l_receiptdate > o.l_commitdate)
        GROUP BY s_name""",
    ),
    22: (
        "well-funded customers of seven countries without an order",
        """
        WITH those(custkey, code, balance) AS (
            SELECT c_custkey, LEFT(c_phone, 2), c_acctbal FROM sales.customer
            WHERE LEFT(c_phone, 2) IN ('13', '31', '23', '29', '30', '18', '17'))
        SELECT code, COUNT(*), SUM(balance)
        FROM those ANTI JOIN sales.orders ON o_custkey = custkey
        WHERE balance > (SELECT AVG(t.balance) FROM those t WHERE t.balance > 0)
        GROUP BY code""",
    ),
}
