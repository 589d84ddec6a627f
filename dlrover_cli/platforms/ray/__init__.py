"""Jobs on a Ray cluster: agents on its nodes, placed and watched by a manager that is its driver.

Ray itself is imported when it is used.
"""
