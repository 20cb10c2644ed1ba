"""The engine: dictionary → embedding → posterior → confidence → choice.

Notation of every file in this package (short uppercase matrices are locals, spelled names are attributes):

    symbol  code              shape     meaning
    A       n_arms                      number of arms
    λ       regularization              ridge, a variance
    ξ       noise                       standard deviation of the noise
    n, s    counts, sums      (u,)      weight and weighted sum of rewards of each pulled arm
    U       pulled            (u,)      distinct arms pulled so far
    S       dictionary        (m,)      sampled inducing arms
    L       L                 (m, m)    pivoted Cholesky factor of K_SS
    z(x)    rows of Z         (·, m)    Nyström embedding L⁻¹ k_S(x)
    r(x)    r                 (·,)      k(x, x) − ‖z(x)‖² ≥ 0
    V=CCᵀ   C                 (m, m)    Σ n_u z_u z_uᵀ + λI, held as its Cholesky factor
    w       w                 (m,)      V⁻¹ Σ s_u z_u
    μ̃       mean              (·,)      z(x)ᵀw
    q                         (·,)      z(x)ᵀ V⁻¹ z(x) = ‖C⁻¹z(x)‖²
    σ̃²      variance          (·,)      r/λ + q, in leverage units: the variance of f is λσ̃²
    β̃       beta                        radius; the score is μ̃ + β̃σ̃
    α       alpha                       (1 + ε)/(1 − ε)
"""
